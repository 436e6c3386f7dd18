"""Why what a person asked for is not done: it is written wrong, or it cannot be done at present."""


class UsageError(Exception):
    """A fault in a file, a flag or a name that a person gave; the command line prints it and exits with 2.

    `lines` holds one line for each fault. Each says where it is and what to write instead.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class NotNow(Exception):
    """What was asked for is written well, and cannot be done as things are: one line that says why. The API answers
    409 and the command line exits with 1, so that a script can tell "try again" from "wrong"."""
