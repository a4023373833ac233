"""How quantities are written on the command line: sizes, rates, shapes, counts, plain numbers."""

import re
from collections.abc import Mapping

import click

from dally.errors import InputError
from dally.profiles.schema import PointShape
from profiler.driver.plan import RankSpread, parse_shape

_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_RATE_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_SPREAD = re.compile(r"([1-9]\d{0,3})x([1-9]\d{0,2})")
_ELEMENT_BYTES = 4
_SWEEP_STEP = 4
_MOST = 1e9


def sweep(text: str) -> tuple[int, ...]:
    """`4K:256M`: sizes in bytes from one to the other, each four times the one before."""
    low, _, high = text.partition(":")
    first, last = (_quantity(part, r"([KMG]?)(?:i?B)?", _SIZE_UNITS) for part in (low, high))
    if not 0 < first <= last or first % _ELEMENT_BYTES or last % _ELEMENT_BYTES:
        raise click.BadParameter(f"{text!r} must be two multiples of 4 bytes, such as 4K:256M")
    sizes = [first]
    while sizes[-1] * _SWEEP_STEP < last:
        sizes.append(sizes[-1] * _SWEEP_STEP)
    return tuple(int(size) for size in dict.fromkeys((*sizes, last)))


def rate(text: str) -> float:
    """`1Gb` or `200Mb`: bits per second."""
    rate_bps = _quantity(text, r"([kMG]?)(?:b|bit)?(?:/s|ps)?", _RATE_UNITS)
    if not rate_bps:
        raise click.BadParameter(f"{text!r} must be a rate in bits per second, such as 1Gb or 200Mb")
    return rate_bps


def shapes(text: str) -> tuple[tuple[RankSpread, ...], ...]:
    """`2x1,rack-4x1`: hosts and ranks on each; none for an empty text."""
    try:
        return tuple(parse_shape(part.strip()) for part in text.split(",")) if text else ()
    except InputError as error:
        raise click.BadParameter(str(error)) from error


def step_time(text: str) -> tuple[PointShape | None, float]:
    """`1.3`, or `2x8=1.3`: seconds, and on how many machines and GPUs of each, if that is said."""
    spread, equals, seconds = text.rpartition("=")
    if not equals:
        return None, positive(text)
    match = _SPREAD.fullmatch(spread.strip())
    if not match:
        raise click.BadParameter(f"{text!r} must be SECONDS or MACHINESxGPUS=SECONDS, such as 2x8=1.3")
    return PointShape(int(match[1]), int(match[2]), None), positive(seconds)


def counts(text: str) -> tuple[int, ...]:
    """`2,2`: numbers of 1 or more."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,3}", part) for part in parts):
        raise click.BadParameter(f"{text!r} must be numbers of 1 or more, such as 2,2")
    return tuple(int(part) for part in parts)


def batches(text: str) -> tuple[int, ...]:
    """`128,64,32`: different numbers of samples; none for an empty text."""
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(re.fullmatch(r"[1-9]\d{0,8}", part) for part in parts) or len(set(parts)) < len(parts):
        raise click.BadParameter(f"{text!r} must be different numbers of 1 or more, such as 128,64")
    return tuple(int(part) for part in parts)


def names(text: str) -> tuple[str, ...]:
    """`v100,k80`: names."""
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise click.BadParameter(f"{text!r} must be names, such as v100,k80")
    return parts


def positive(text: str) -> float:
    """`2.5`: a number above 0; neither nan nor so large that nothing can wait so many seconds."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST:
        raise click.BadParameter(f"{text!r} must be a number above 0, at most {_MOST:g}")
    return number


def speeds(text: str) -> float | Mapping[str, float]:
    """`1.5`, or `v100=2,k80=0.5`: one number above 0 for all, or one for each name."""
    if "=" not in text:
        return positive(text)
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() for name, _, _ in pairs):
        raise click.BadParameter(f"{text!r} must be names with numbers, such as v100=2,k80=0.5")
    return {name.strip(): positive(number) for name, _, number in pairs}


def _quantity(text: str, unit: str, factors: Mapping[str, float]) -> float:
    """A number with a unit; 0 if it is none."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?(?:e\d{{1,2}})?){unit}", text.strip())
    return float(match[1]) * factors[match[2]] if match else 0.0
