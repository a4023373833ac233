"""`python -m testbed.running.gpu_counters`: what this machine's GPUs count now, as one line of JSON."""

import json
from collections.abc import Callable

from profiler.rank.nvml import CounterError, Nvml, open_nvml


def counters(nvml: Nvml) -> list[dict[str, float | None]]:
    """Utilisation and memory in use of each GPU; None where it lacks the counter."""

    def known(read: Callable[[], float]) -> float | None:
        try:
            return read()
        except CounterError:
            return None

    gpus = [nvml.gpu_at(index) for index in range(nvml.count())]
    return [
        {"utilisation": known(gpu.utilisation), "memory_used_bytes": known(gpu.memory_used_bytes)}
        for gpu in gpus
    ]


if __name__ == "__main__":
    try:
        said: dict[str, object] = {"gpus": counters(open_nvml())}
    except CounterError as error:
        said = {"gpus": None, "reason": str(error)}
    print(json.dumps(said))
