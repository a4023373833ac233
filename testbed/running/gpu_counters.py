"""`python -m testbed.running.gpu_counters`: what this machine's GPUs count now, as one line of JSON."""

import json
from collections.abc import Callable
from typing import TypeVar

from profiler.rank.nvml import CounterError, Nvml, open_nvml

_Value = TypeVar("_Value")


def counters(nvml: Nvml) -> list[dict[str, float | None]]:
    """Utilisation and memory in use of each GPU; None where it lacks the counter."""
    gpus = [nvml.gpu_at(index) for index in range(nvml.count())]
    return [
        {"utilisation": known(gpu.utilisation), "memory_used_bytes": known(gpu.memory_used_bytes)}
        for gpu in gpus
    ]


def known(question: Callable[[], _Value]) -> _Value | None:
    """What a counter says, or None."""
    try:
        return question()
    except CounterError:
        return None


def main() -> None:
    """Print it; null with the reason where there is no GPU."""
    try:
        said: dict[str, object] = {"gpus": counters(open_nvml())}
    except CounterError as error:
        said = {"gpus": None, "reason": str(error)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
