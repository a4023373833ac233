"""Compares the set `dally` with the slowdowns that the author's simulator computes for a job alone."""

from collections.abc import Mapping
from dataclasses import dataclass

from dally.cluster.topology import Link, Ring, Shape
from dally.markdown import table
from dally.profiles.imports.dally import dally_profiles
from dally.profiles.iteration import predict

DALLY_SLOWDOWNS: Mapping[str, tuple[float, float, float, float]] = {
    "vgg11": (1.00, 1.10, 1.33, 9.5),
    "alexnet": (1.00, 1.19, 2.29, 23.7),
    "resnet18": (1.04, 2.16, 28.8, 422),
    "resnet50": (1.12, 1.12, 1.49, 14.1),
    "mobilenetv3": (1.36, 10.4, 197, 2950),
    "bert-large": (1.09, 1.14, 8.4, 117),
}
"""The author's slowdowns, by model, on the placements of `dally_shapes`."""

_BITS_PER_GB = 8e9


@dataclass(frozen=True, slots=True)
class Uplinks:
    """Bandwidths of the uplinks, GB/s."""

    machine_gbytes: float
    rack_gbytes: float


PER_GPU = Uplinks(1600, 3200)
"""200 and 400 GB/s for each GPU, as in the author's simulator, of the 8 GPUs below the uplink."""

SHARED = Uplinks(200, 400)
"""The same figures taken as one link that all GPUs below it share."""


def dally_shapes(uplinks: Uplinks) -> tuple[Shape, ...]:
    """8 GPUs in a machine; 16 on two machines of a rack, on two racks, and scattered over 16 racks.

    A machine has two slots of four GPUs: 600 GB/s without latency in a slot, 600 GB/s and 500 ns between.
    A step between siblings crosses two uplinks of 2.5 us (machine) or 50 us (rack) each.
    """
    slot = Ring(4, Link(600 * _BITS_PER_GB), 1)
    slots = Ring(2, Link(600 * _BITS_PER_GB, 500e-9), 1)
    machines = Ring(2, Link(uplinks.machine_gbytes * _BITS_PER_GB, 2.5e-6), 2)
    rack_uplink = Link(uplinks.rack_gbytes * _BITS_PER_GB, 50e-6)
    return (
        Shape(0, (8,), (), (slot, slots), ("",)),
        Shape(1, (8, 8), (2,), (slot, slots, machines), ("",)),
        Shape(2, (8, 8), (1, 1), (slot, slots, Ring(2, rack_uplink, 2)), ("",)),
        Shape(2, (1,) * 16, (1,) * 16, (Ring(16, rack_uplink, 2),), ("",)),
    )


def slowdowns(uplinks: Uplinks) -> dict[str, tuple[float, ...]]:
    """Our slowdowns by model: predicted iteration time over compute alone, on each of `dally_shapes`."""
    shapes = dally_shapes(uplinks)
    return {
        profile.model.name: tuple(
            predict(profile, shape).iteration_s / profile.compute.total_s for shape in shapes
        )
        for profile in dally_profiles()
    }


def dally_table() -> str:
    """The author's slowdowns, ours with the uplinks per GPU, and ours with the uplinks shared."""
    per_gpu, shared = slowdowns(PER_GPU), slowdowns(SHARED)
    rows = []
    for model, theirs in DALLY_SLOWDOWNS.items():
        placements = zip(theirs, per_gpu[model], shared[model], strict=True)
        cells = ((f"{each:.3g}" if each < 1000 else f"{each:.0f}" for each in three) for three in placements)
        rows.append((model, *map(" / ".join, cells)))
    return table(("model", "8 in a machine", "16, two machines", "16, two racks", "16, 16 racks"), rows)
