"""What a controller with many jobs would say, for tests of what is shown of it."""

import time
from typing import Any

from slurm_plugin.service.top_view import ControllerView

NOW_S = 100.0
"""This machine's monotonic clock, when the picture is looked at."""


def job(number: int, state: str, **changes: Any) -> dict[str, Any]:
    """A job of 8 GPUs that has stood there for as many minutes as its number."""
    waits = state == "pending"
    return {
        "job": str(number),
        "user": "alice",
        "model": "vgg16",
        "gpus": 8,
        "state": state,
        "since_s": time.time() - 60.0 * number,
        "until_s": time.time() + 600.0 if waits else None,
        "level": "machine" if waits else "",
        "next_level": "rack" if waits else "",
        "nodes": {"n7": 8} if state == "running" else {},
        "reason": f"no machine has {number % 3 + 6} free GPUs; declines farther ones" if waits else "",
        "submit_s": 0.0,
        "refusals": 0,
        "preemptions": 0,
        **changes,
    }


def picture(pending: int, running: int = 0, ineligible: int = 0, **status: Any) -> ControllerView:
    """The last word of a controller of 8 machines, 1 s old when it is looked at."""
    counts = {"running": running, "pending": pending, "ineligible": ineligible}
    jobs = [job(number, state) for state, count in counts.items() for number in range(1, count + 1)]
    used = min(64, 8 * running)
    said = {
        "healthy": True,
        "reason": "",
        "mode": "normal",
        "version": "0.2.0",
        "age_s": 0.5,
        "problems": [],
        "now_s": time.time() - 0.5,
        "policy": "dally",
        "partitions": ["gpu"],
        "nodes": 8,
        "jobs": counts,
        "gpus": {"total": 64, "used": used, "free": 64 - used, "unavailable": 0},
        "miscounted": {},
        "most_free": {"machine": 8, "rack": 16, "network": 64 - used},
        "timers": [
            {"level": level, "gpus": gpus, "delay_s": delay_s, "waits": 0}
            for gpus in (1, 8, 16)
            for level, delay_s in (("machine", 120.0), ("rack", 3600.0))
        ],
        "decisions": {"start": running},
        "observe_s": 0.03,
        "cycle_s": 0.05,
        **status,
    }
    return ControllerView(said, jobs, NOW_S - 1.0)
