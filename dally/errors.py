"""The errors a user can cause or meet; every command prints one as a single line."""

_LONGEST = 4_000


class DallyError(Exception):
    """Root of all errors reported in one line, naming what was wrong and what is valid.

    Attributes:
        hint: What options of a command would help; empty if none.
    """

    hint: str = ""

    def __str__(self) -> str:
        """The message in one line that a terminal takes as text: users, files and Slurm wrote parts of it."""
        said = super().__str__()
        line = "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in said)
        return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


class InputError(DallyError):
    """A file, option or value given by the user is wrong."""


class CapacityError(DallyError):
    """A job asks for more than the cluster could ever give."""
