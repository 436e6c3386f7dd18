"""What goes wrong because of what a person wrote."""


class UsageError(Exception):
    """A fault in a file, a flag or a name that a person gave; the command line prints it and exits with 2.

    `lines` holds one line for each fault. Each says where it is and what to write instead.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
