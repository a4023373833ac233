"""Where imported profiles come from: the provenance they share."""

from dataclasses import dataclass

from dally import __version__
from dally.profiles.schema import ProfileMode, Provenance

_IMPORTED_AT = "2026-11-21T00:00:00Z"
"""A fixed time, so that the same tables give the same files."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where tables are from and under which licence, as whoever imports them says."""

    source: str = "unknown"
    licence: str = "unknown"

    def provenance(self, detail: str) -> Provenance:
        """The provenance of a profile out of a part of the tables."""
        return imported(f"{self.source}, {detail}", self.licence)


UNKNOWN = Origin()


def imported(source: str, licence: str) -> Provenance:
    """The provenance of a profile made from published figures."""
    return Provenance(ProfileMode.IMPORTED, source, licence, f"dally {__version__}", _IMPORTED_AT)
