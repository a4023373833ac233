"""Starts that users take back: a job held, put off or changed by its own user as soon as it was released.

Its GPUs are promised until the next look. One after the other, a user's jobs could keep them idle like that,
so after some of them none of his jobs is started for a while. What is counted is forgotten at the end.
"""

from dally.words import span
from slurm_plugin.client.slurm import Hold, SlurmJob
from slurm_plugin.controller.failed_starts import longer

PATIENCE = 3
"""So many of a user's starts may be taken back without a pause."""

FORGOTTEN_S = 3600.0
"""A user who has taken back none for so long, seconds, begins anew."""

_AHEAD_S = 5.0
"""Slurm's clock may be so much ahead of ours."""

_KEPT = ("partition", "excluded_nodes", "features", "licenses", "qos", "account")
"""What a release does not change."""


class TakenBack:
    """Counts the starts that users have taken back.

    Args:
        backoff_s: The first pause, seconds; it doubles each time, up to an hour.
    """

    def __init__(self, backoff_s: float) -> None:
        self._backoff_s = backoff_s
        self._users: dict[str, tuple[int, float]] = {}

    def note(self, user: str, now: float) -> None:
        """A user took back a start."""
        count, last_s = self._users.get(user, (0, now))
        self._users[user] = (1 if now >= last_s + FORGOTTEN_S else count + 1), now

    def pause(self, user: str, now: float) -> tuple[str, float]:
        """Why a user's jobs must wait, in words, and until when, seconds; empty if they need not."""
        count, last_s = self._users.get(user, (0, 0.0))
        if count < PATIENCE:
            return "", 0.0
        pause_s = longer(self._backoff_s, count - PATIENCE + 1)
        why = (
            f"its user has held or changed {count} jobs just as they were to start: his wait {span(pause_s)}"
        )
        return (why, last_s + pause_s) if now < last_s + pause_s else ("", 0.0)


def taken_back(job: SlurmJob, before: SlurmJob | None, now: float) -> str:
    """Why a released job does not start, if somebody has changed that since the last look; else empty."""
    if job.hold is not Hold.NONE:
        return ""
    if job.begin_s > now + _AHEAD_S:
        return "BeginTime"
    if before is None or before is job:
        return ""
    if {*job.dependency.split(",")} - {*before.dependency.split(","), ""}:
        return "Dependency"
    changed = [name for name in _KEPT if getattr(job, name) != getattr(before, name)]
    return f"its {changed[0].replace('_', ' ')} was changed" if changed else ""
