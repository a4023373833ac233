"""GPU types: Slurm's names for them, CUDA's names for the devices, and which type is nearest to which."""

import re
from collections.abc import Mapping
from math import log

TERAFLOPS: Mapping[str, float] = {
    "k80": 4.1,
    "p100": 19,
    "v100": 125,
    "t4": 65,
    "a10": 125,
    "a30": 165,
    "a40": 150,
    "a100": 312,
    "l4": 121,
    "l40": 181,
    "l40s": 362,
    "h100": 989,
    "h200": 989,
    "h20": 148,
    "gh200": 989,
    "b200": 2250,
    "b300": 2500,
    "gb200": 2500,
    "gb300": 2500,
}
"""Dense teraflops in fp16 or bf16 that each type's data sheet claims, of one GPU (K80: one of its two, fp32).

Only to say which type is nearest to another; nothing is scaled by them, as no model reaches them alike.
"""

_SLICE = re.compile(r"(?<!\d)\d+g\.\d+gb")
"""A part of a GPU under MIG, such as `1g.10gb`: never the type of a whole one."""

_PRODUCTS = re.compile(r"(?<![a-z])[a-z]+\d+[a-z]*|(?<!\d)\d+[a-z]+\d*")


def slurm_type(name: str) -> str:
    """The type that a device's name tells, such as `h100` of `NVIDIA H100 80GB HBM3`.

    Slurm's own names by AutoDetect (`nvidia_h100_80gb_hbm3`) are read too. A name that tells no known type,
    more than one, or a part of a GPU is given back as it is.
    """
    lowered = name.lower()
    if _SLICE.search(lowered):
        return name
    known = {word for word in _PRODUCTS.findall(lowered) if word in TERAFLOPS}
    return known.pop() if len(known) == 1 else name


def same_type(one: str | None, other: str | None) -> bool:
    """Whether two names are of one GPU type, whether as Slurm or as CUDA writes them."""
    if one is None or other is None:
        return one == other
    return one == other or slurm_type(one) == slurm_type(other)


def distance(one: str, other: str) -> float:
    """How far two types are apart in speed, 0 for as fast; infinite if one of them is unknown."""
    rates = [TERAFLOPS.get(slurm_type(name)) for name in (one, other)]
    if rates[0] is None or rates[1] is None:
        return float("inf")
    return abs(log(rates[0] / rates[1]))
