"""Where imported profiles come from: the provenance they share."""

from dally import __version__
from dally.profiles.schema import Mode, Provenance

_IMPORTED_AT = "2026-11-21T00:00:00Z"
"""A fixed time, so that the same tables give the same files."""


def imported(source: str, licence: str) -> Provenance:
    """The provenance of a profile made from published figures."""
    return Provenance(Mode.IMPORTED, source, licence, f"dally {__version__}", _IMPORTED_AT)
