"""The errors a user can cause or meet; every command prints one as a single line."""

from dally.words import clean, cut


class DallyError(Exception):
    """Root of all errors reported in one line, naming what was wrong and what is valid.

    Attributes:
        hint: What options of a command would help; empty if none.
    """

    hint: str = ""

    def __str__(self) -> str:
        """The message in one line that a terminal takes as text: users, files and Slurm wrote parts of it."""
        return cut(clean(super().__str__()))


class InputError(DallyError):
    """A file, option or value given by the user is wrong."""


class CapacityError(DallyError):
    """A job asks for more than the cluster could ever give."""
