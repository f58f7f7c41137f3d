"""Parts of the installation that some features need, and how they are brought in."""


def pip_install(extra: str) -> str:
    """The command. By a path: Runwatch is on no package index, where its name is anybody's to
    take."""
    return f"pip install '/path/to/checkout[{extra}]'"
