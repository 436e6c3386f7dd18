"""How each kind of router is told who is behind it."""
