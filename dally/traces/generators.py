"""The generated workloads, by name; one is named wherever a trace file is accepted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dally.errors import InputError
from dally.jobs.job import Job
from dally.spec import spec_knobs, spec_name
from dally.traces.fits import LINGJUN, PHILLY, PLAIN, VENUS
from dally.traces.gavel import SIZES, gavel_workload
from dally.traces.hadar import hadar_workload
from dally.traces.knobs import knob_mix, knob_number, knob_whole
from dally.traces.published_dally import BATCH, POISSON, published_workload
from dally.traces.synthetic import WorkloadShape, synthesize

_MOST_JOBS = 10_000_000

_SIZE_KNOBS: Mapping[str, Callable[[str], Any]] = {
    "jobs": lambda text: knob_whole("jobs", text, low=1, high=_MOST_JOBS),
    "gpus": lambda text: knob_mix("gpus", text),
    "mu": lambda text: knob_number("mu", text, low=-20, high=50),
    "sigma": lambda text: knob_number("sigma", text, low=0, high=20),
    "max_s": lambda text: knob_number("max_s", text, low=1),
}
_ARRIVAL_KNOBS: Mapping[str, Callable[[str], Any]] = {
    "gap_s": lambda text: knob_number("gap_s", text, low=0.001),
    "load": lambda text: knob_number("load", text, low=0.001),
    "cluster_gpus": lambda text: knob_whole("cluster_gpus", text, low=1, high=10_000_000),
}
_PEOPLE_KNOBS: Mapping[str, Callable[[str], Any]] = {
    "users": lambda text: knob_whole("users", text, low=0, high=1_000_000),
    "names": lambda text: knob_whole("names", text, low=0, high=1_000_000),
}
_MADE_KNOBS: Mapping[str, Callable[[str], Any]] = {
    "jobs": _SIZE_KNOBS["jobs"],
    "gpus": _SIZE_KNOBS["gpus"],
    "gap_s": lambda text: knob_number("gap_s", text, low=0),
}
_BURST_KNOBS: Mapping[str, Callable[[str], Any]] = {
    "cv": lambda text: knob_number("cv", text, low=1, high=100)
}


@dataclass(frozen=True, slots=True)
class Generator:
    """One generated workload.

    Attributes:
        summary: What it is, in a few words.
        knobs: Its knobs and how each is parsed; knob names are the fields of `Shape`.
        draw: Makes the jobs from its name, the parsed knobs and the seed.
    """

    summary: str
    knobs: Mapping[str, Callable[[str], Any]]
    draw: Callable[[str, Mapping[str, Any], int], Sequence[Job]]


def _synthetic(summary: str, shape: WorkloadShape, *knobs: Mapping[str, Callable[[str], Any]]) -> Generator:
    """A generator that draws from a shape; setting mu or sigma replaces the fits by GPU count as well."""

    def draw(name: str, values: Mapping[str, Any], seed: int) -> Sequence[Job]:
        if "load" in values and "gap_s" in values:
            raise InputError("load and gap_s exclude each other: the load sets the gap")
        own: dict[str, Any] = {"fits": {}} if {"mu", "sigma"} & set(values) else {}
        return synthesize(name, replace(shape, **values, **own), seed)

    merged = {name: parse for group in (_SIZE_KNOBS, *knobs, _PEOPLE_KNOBS) for name, parse in group.items()}
    return Generator(summary, merged, draw)


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
    "gavel": Generator(
        "Gavel's, with models of profile set gavel",
        _MADE_KNOBS,
        lambda name, values, seed: gavel_workload(
            name, values.get("jobs", 1000), values.get("gap_s", 1800.0), values.get("gpus", SIZES), seed
        ),
    ),
    "hadar": Generator(
        "Hadar's four classes of GPU time, with models of profile set gavel",
        _MADE_KNOBS,
        lambda name, values, seed: hadar_workload(
            name, values.get("jobs", 480), values.get("gap_s", 0.0), values.get("gpus", SIZES), seed
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
    try:
        return generator.draw(name, _parse_knobs(generator, spec), seed)
    except InputError as error:
        raise InputError(f"{spec}: {error}") from error


def _parse_knobs(generator: Generator, spec: str) -> dict[str, Any]:
    """The values of a specification's knobs."""
    values = {}
    for knob, text in spec_knobs(spec).items():
        if knob not in generator.knobs:
            valid = ", ".join(generator.knobs) or "none"
            raise InputError(f"unknown knob {knob!r}; knobs: {valid}")
        values[knob] = generator.knobs[knob](text)
    return values
