"""The generated workloads, by name; one is named wherever a trace file is accepted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dally.bounds import MOST
from dally.config_text import naming
from dally.errors import InputError
from dally.jobs.job import Job
from dally.spec import spec_knobs, spec_name
from dally.traces.acme import kalos_workload
from dally.traces.published_workloads import (
    BATCH,
    GAVEL_SIZES,
    POISSON,
    gavel_workload,
    hadar_workload,
    published_workload,
)
from dally.traces.synthetic import WorkloadShape, synthesize
from dally.words import plural


def knob_number(name: str, text: str, *, low: float, high: float = MOST) -> float:
    """A number between `low` and `high`, both allowed.

    Raises:
        InputError: The text is no such number.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        bound = f"at least {low:g}" if high == MOST else f"from {low:g} to {high:g}"
        raise InputError(f"{name} is {text!r}, must be a number {bound}")
    return value


def knob_whole(name: str, text: str, *, low: int, high: int) -> int:
    """A whole number between `low` and `high`, both allowed.

    Raises:
        InputError: The text is no such number.
    """
    value = knob_number(name, text, low=low, high=high)
    if not value.is_integer():
        raise InputError(f"{name} is {text!r}, must be a whole number")
    return int(value)


def knob_choice(name: str, text: str, *, valid: Sequence[str]) -> str:
    """One of some words.

    Raises:
        InputError: The text is none of them.
    """
    if text not in valid:
        raise InputError(f"{name} is {text!r}, must be one of {', '.join(valid)}")
    return text


def knob_mix(name: str, text: str) -> tuple[tuple[int, float], ...]:
    """A mix of GPU counts: `8`, or counts with weights like `1:60/8:30/16:10`.

    Raises:
        InputError: A count or weight is wrong, or a count is given twice.
    """
    mix: dict[int, float] = {}
    for item in text.split("/"):
        count_text, colon, weight_text = item.partition(":")
        count = knob_whole(name, count_text, low=1, high=1_000_000)
        if count in mix:
            raise InputError(f"{name}: {plural(count, 'GPU')} given twice")
        mix[count] = knob_number(name, weight_text, low=1e-9) if colon else 1.0
    return tuple(mix.items())


# The distributions behind the synthetic workloads: three fitted to published traces, and a plain one. Shares
# of the GPU counts, in per cent of the jobs, and the longest job are counted in the traces (Philly: its
# steady slice); counts rarer than 0.01 % are left out. Durations and gaps are the fits published beside them.

PLAIN = WorkloadShape(gpus=knob_mix("gpus", "1:50/2:10/4:15/8:20/16:5"), mu=8.2, sigma=1.5, max_s=864_000.0)
"""Round numbers for small studies (median 1 h), no fit to anything."""

# Philly's 8-GPU jobs have a fit of their own. mu and sigma of the others are such that all jobs together have
# the published 7.15 and 2.44: with w = 4.97 %, mu = (7.15 - w * 9.01) / (1 - w), and likewise the variance.
PHILLY = WorkloadShape(
    gpus=knob_mix("gpus", "1:86.8/2:2.26/4:4.96/8:4.97/12:.01/16:.73/24:.04/32:.2/64:.02/128:.01"),
    mu=7.053,
    sigma=2.365,
    fits={8: (9.01, 3.04)},
    max_s=5_185_940.0,
    gap_s=64.0,
    cv=2.7,
)

VENUS = WorkloadShape(
    gpus=knob_mix(
        "gpus",
        "1:55.01/2:5.04/3:.13/4:5.99/5:.02/6:.08/7:.18/8:22.06/16:5.36/24:1.04/32:2.28/40:.55/48:.96/56:.22"
        "/64:.04/72:.1/80:.39/88:.07/96:.03/104:.01/112:.04/120:.02/128:.11/136:.05/144:.08/152:.03/160:.12",
    ),
    mu=5.95,
    sigma=2.85,
    max_s=1_964_673.0,
    gap_s=162.0,
    cv=3.9,
)

LINGJUN = WorkloadShape(
    gpus=knob_mix(
        "gpus",
        "1:9.33/2:4.76/3:.52/4:7.05/6:.96/8:33.03/9:.16/12:.48/16:7.29/24:1.12/32:16.17/40:.12/48:3.12/56:.08"
        "/59:.04/60:1.28/64:4.24/72:.76/80:.6/88:.8/91:.04/118:.04/120:.04/128:.72/256:5.56/400:.52/448:.04"
        "/464:.04/496:.08/504:.04/512:.92/744:.04",
    ),
    mu=6.12,
    sigma=2.83,
    max_s=1_237_860.0,
    gap_s=551.0,
    cv=4.1,
)

Parse = Callable[[str, str], Any]
"""Makes a value of a knob's name and text."""


_SIZE_KNOBS: Mapping[str, Parse] = {
    "jobs": partial(knob_whole, low=1, high=10_000_000),
    "gpus": knob_mix,
    "mu": partial(knob_number, low=-20, high=50),
    "sigma": partial(knob_number, low=0, high=20),
    "max_s": partial(knob_number, low=1),
}
_ARRIVAL_KNOBS: Mapping[str, Parse] = {
    "gap_s": partial(knob_number, low=0.001),
    "load": partial(knob_number, low=0.001),
    "cluster_gpus": partial(knob_whole, low=1, high=10_000_000),
}
_BURST_KNOBS: Mapping[str, Parse] = {"cv": partial(knob_number, low=1, high=100)}
_PEOPLE_KNOBS: Mapping[str, Parse] = {
    "users": partial(knob_whole, low=0, high=1_000_000),
    "names": partial(knob_whole, low=0, high=1_000_000),
}
_KALOS_KNOBS: Mapping[str, Parse] = {
    "jobs": _SIZE_KNOBS["jobs"],
    "most_gpus": partial(knob_whole, low=8, high=1024),
    **_ARRIVAL_KNOBS,
    **_BURST_KNOBS,
}
_GB200_KNOBS: Mapping[str, Parse] = {
    **_KALOS_KNOBS,
    "segments": partial(knob_choice, valid=("none", "static")),
}
_PUBLISHED_KNOBS: Mapping[str, Parse] = {
    "jobs": _SIZE_KNOBS["jobs"],
    "gpus": knob_mix,
    "gap_s": partial(knob_number, low=0),
}


@dataclass(frozen=True, slots=True)
class Generator:
    """One generated workload.

    Attributes:
        summary: What it is, in a few words.
        knobs: Its knobs and how each is parsed; knob names are the fields of `WorkloadShape`.
        draw: Makes the jobs from its name, the parsed knobs and the seed.
    """

    summary: str
    knobs: Mapping[str, Parse]
    draw: Callable[[str, Mapping[str, Any], int], Sequence[Job]]


def _synthetic(summary: str, shape: WorkloadShape, *knobs: Mapping[str, Parse]) -> Generator:
    """A generator that draws from a shape; setting mu or sigma replaces the fits by GPU count as well."""

    def draw(name: str, values: Mapping[str, Any], seed: int) -> Sequence[Job]:
        _check_pace(values)
        own: dict[str, Any] = {"fits": {}} if {"mu", "sigma"} & set(values) else {}
        return synthesize(name, replace(shape, **values, **own), seed)

    merged = {name: parse for group in (_SIZE_KNOBS, *knobs, _PEOPLE_KNOBS) for name, parse in group.items()}
    return Generator(summary, merged, draw)


def _check_pace(values: Mapping[str, Any]) -> None:
    if "load" in values and "gap_s" in values:
        raise InputError("load and gap_s exclude each other: the load sets the gap")


def _kalos(name: str, values: Mapping[str, Any], seed: int) -> Sequence[Job]:
    _check_pace(values)
    return kalos_workload(name, seed, **values)


GENERATORS: Mapping[str, Generator] = {
    "dally-batch": Generator(
        "the published Dally's 500 SenseTime jobs, all at once",
        {},
        lambda name, _, seed: published_workload(name, BATCH, seed),
    ),
    "dally-poisson": Generator(
        "the published Dally's 411 multi-GPU SenseTime jobs over a week",
        {},
        lambda name, _, seed: published_workload(name, POISSON, seed),
    ),
    "batch": _synthetic("all jobs at once", PLAIN),
    "poisson": _synthetic("Poisson arrivals", replace(PLAIN, gap_s=600.0), _ARRIVAL_KNOBS),
    "bursty": _synthetic(
        "bursty arrivals", replace(PLAIN, gap_s=600.0, cv=3.0), _ARRIVAL_KNOBS, _BURST_KNOBS
    ),
    "philly-like": _synthetic("fitted to Microsoft Philly", PHILLY, _ARRIVAL_KNOBS, _BURST_KNOBS),
    "venus-like": _synthetic("fitted to SenseTime Helios Venus", VENUS, _ARRIVAL_KNOBS, _BURST_KNOBS),
    "lingjun-like": _synthetic("fitted to Alibaba Lingjun", LINGJUN, _ARRIVAL_KNOBS, _BURST_KNOBS),
    "kalos-like": Generator(
        "Acme Kalos: LLM pretraining, evaluation and debugging, with parallel plans", _KALOS_KNOBS, _kalos
    ),
    "gb200-like": Generator(
        "kalos-like on the machines of 4 GPUs of NVL72 racks; segments=static sets segments",
        _GB200_KNOBS,
        lambda name, values, seed: _kalos(name, {**values, "machine_gpus": 4}, seed),
    ),
    "gavel": Generator(
        "Gavel's, with models of profile set gavel",
        _PUBLISHED_KNOBS,
        lambda name, values, seed: gavel_workload(
            name, values.get("jobs", 1000), values.get("gap_s", 1800.0), values.get("gpus", GAVEL_SIZES), seed
        ),
    ),
    "hadar": Generator(
        "Hadar's four classes of GPU time, with models of profile set gavel",
        _PUBLISHED_KNOBS,
        lambda name, values, seed: hadar_workload(
            name, values.get("jobs", 480), values.get("gap_s", 0.0), values.get("gpus", GAVEL_SIZES), seed
        ),
    ),
}


def is_generator(spec: str) -> bool:
    """Whether a specification names a generator."""
    return spec_name(spec) in GENERATORS


def generate(spec: str, seed: int) -> Sequence[Job]:
    """Draw the workload of a specification; the same specification and seed give the same jobs.

    Args:
        spec: `NAME[:knob=value,...]`, like `philly-like:jobs=2000,load=0.8,cluster_gpus=256`.
        seed: Seed of all random streams.

    Raises:
        InputError: The name or a knob is unknown, or a value is wrong; names the valid ones.
    """
    name = spec_name(spec)
    if name not in GENERATORS:
        raise InputError(f"unknown generator {name!r}, must be one of {', '.join(GENERATORS)}")
    generator = GENERATORS[name]
    with naming(spec):
        values = {}
        for knob, text in spec_knobs(spec).items():
            if knob not in generator.knobs:
                valid = ", ".join(generator.knobs) or "none"
                raise InputError(f"unknown knob {knob!r}; knobs: {valid}")
            values[knob] = generator.knobs[knob](knob, text)
        return generator.draw(name, values, seed)
