"""What the language models share: texts of a number of tokens."""

from dally.errors import InputError
from workloads.task import Numbers


def texts(tokens: int | None, longest: int, vocabulary: int) -> Numbers:
    """Texts of equal length.

    Raises:
        InputError: They are empty, or longer than the model can take.
    """
    if tokens is None or not 0 < tokens <= longest:
        raise InputError(f"size is {tokens} tokens, must be 1 to {longest}")
    return Numbers((tokens,), (vocabulary,))
