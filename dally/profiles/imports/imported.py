"""What imported profiles share: their provenance, and flags for what in their tables does not fit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from dally import __version__
from dally.profiles.checks import measured_points
from dally.profiles.gpu_types import TERAFLOPS
from dally.profiles.schema import BatchTime, Profile, ProfileMode, Provenance, Quality
from dally.words import share

_IMPORTED_AT = "2026-11-21T00:00:00Z"
"""A fixed time, so that the same tables give the same files."""

_NOTABLE = 0.05
"""Differences below this fraction may be noise."""

_MUCH_FASTER = 1.5
"""One GPU type should be faster than another if its data sheet says so many times its teraflops."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where tables are from and under which licence, as the importing user says."""

    source: str = "unknown"
    licence: str = "unknown"

    def provenance(self, detail: str) -> Provenance:
        """The provenance of a profile out of a part of the tables."""
        return imported(f"{self.source}, {detail}", self.licence)


UNKNOWN = Origin()


def imported(source: str, licence: str) -> Provenance:
    """The provenance of a profile made from published figures."""
    return Provenance(ProfileMode.IMPORTED, source, licence, f"dally {__version__}", _IMPORTED_AT)


def flag_inconsistent(profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """The profiles of one table, each with flags for what of it contradicts itself or the others."""
    return tuple(
        with_flags(profile, (*_batch_flags(profile), *_gpus_flags(profile), *_type_flags(profile, profiles)))
        for profile in profiles
    )


def with_flags(profile: Profile, flags: Iterable[str]) -> Profile:
    """A profile with further flags; unchanged if there are none."""
    added = tuple(flags)
    if not added:
        return profile
    quality = profile.quality or Quality()
    return replace(profile, quality=replace(quality, flags=(*quality.flags, *added)))


def _batch_flags(profile: Profile) -> Iterator[str]:
    """Batches that a GPU gets through more slowly, sample by sample, than smaller ones."""
    own = profile.model.local_batch
    if own is None:
        return
    times = [*profile.compute.other_batches, BatchTime(own, profile.compute.total_s)]
    for low, high in pairwise(sorted(times, key=lambda each: each.local_batch)):
        if high.total_s < low.total_s * (1 - _NOTABLE):
            yield f"an iteration with local batch {high.local_batch} is shorter than with {low.local_batch}"
        ratio = low.total_s * high.local_batch / (high.total_s * low.local_batch)
        if ratio < 1 - _NOTABLE:
            yield (
                f"samples/s fall by {share(1 - ratio)} from local batch {low.local_batch} "
                f"to {high.local_batch}"
            )


def _gpus_flags(profile: Profile) -> Iterator[str]:
    """Several GPUs whose iteration is shorter than that of one."""
    for _, point in measured_points(profile):
        assert point.iteration is not None
        ratio = point.iteration.median_s / profile.compute.total_s
        if ratio < 1 - _NOTABLE:
            spread = f"{point.shape.nodes}x{point.shape.gpus_per_node}"
            yield f"an iteration on {spread} GPUs is {share(1 - ratio)} shorter than on one"


def _type_flags(profile: Profile, others: Iterable[Profile]) -> Iterator[str]:
    """Types that are slower than ones they should be faster than."""
    alike = [
        each
        for each in others
        if (each.model.name, each.model.local_batch) == (profile.model.name, profile.model.local_batch)
    ]
    for fast, slow in permutations(alike, 2):
        rates = [TERAFLOPS.get(each.env.gpu_type or "") for each in (fast, slow)]
        if profile not in (fast, slow) or rates[0] is None or rates[1] is None:
            continue
        ratio = fast.compute.total_s / slow.compute.total_s
        if rates[0] > rates[1] * _MUCH_FASTER and ratio > 1 + _NOTABLE:
            yield (
                f"one {fast.env.gpu_type} is {share(ratio - 1)} slower than one {slow.env.gpu_type}, "
                f"{fast.compute.total_s:.3g} s and {slow.compute.total_s:.3g} s an iteration"
            )
