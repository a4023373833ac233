"""Short ways to ask what happened in a simulation."""

from dally.jobs.job import Job
from dally.testing.worlds import Result


def job(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, model: str = "") -> Job:
    return Job(name, submit_s, gpus, duration_s, model=model)


def times(result: Result, name: str, event: str = "start") -> list[float]:
    """When an event happened to a job, seconds."""
    return [each["t"] for each in result.events if each["event"] == event and each["job"] == name]


def levels(result: Result, name: str) -> list[str]:
    """The levels at which a job started."""
    return [each["level"] for each in result.events if each["event"] == "start" and each["job"] == name]


def waits(result: Result, name: str) -> list[tuple[float, float | None]]:
    """When a job was said to wait, and until when."""
    found = [each for each in result.events if each["event"] == "wait" and each["job"] == name]
    return [(each["t"], each["until"]) for each in found]
