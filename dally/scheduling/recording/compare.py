"""What differs between two plans for one moment, in words and in counts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf

from dally.cluster.topology import Topology
from dally.plan import Decision, Migrate, Plan, Preempt, Resize, Start, Wait


@dataclass(frozen=True, slots=True)
class Difference:
    """What one plan says otherwise than the recorded one.

    Attributes:
        line: Where the recorded one stands.
        t: When it was decided, seconds.
        what: A job, the order of the decisions, or the time of the next question.
        then: What was decided then, in words.
        now: What is decided now.
    """

    line: int
    t: float
    what: str
    then: str
    now: str


def differences(
    then: Plan, now: Plan, topology: Topology, acts_only: bool = False
) -> Iterator[tuple[str, str, str]]:
    """What differs: of whom, then, now.

    Args:
        then: The recorded plan.
        now: The plan of today.
        topology: Gives machines and levels their names.
        acts_only: Whether waits, reasons, and when to ask again do not count.
    """
    before, after = _by_job(then.decisions), _by_job(now.decisions)
    for job_id in dict.fromkeys([*before, *after]):
        one, two = before.get(job_id, []), after.get(job_id, [])
        same = _acts(one) == _acts(two) if acts_only else one == two
        if not same:
            yield f"job {job_id}", _words(one, topology), _words(two, topology)
    if acts_only:
        return
    if then.wakeup_s != now.wakeup_s:
        yield "the next question", _at(then.wakeup_s), _at(now.wakeup_s)
    if before == after and then.decisions != now.decisions:
        yield "the order", ", ".join(before), ", ".join(after)


def count_acts(then: Plan, now: Plan) -> dict[str, int]:
    """Starts, preemptions and migrations of `both` plans, only `then`, only `now`."""
    before, after = _acts(then.decisions), _acts(now.decisions)
    return {"both": len(before & after), "then": len(before - after), "now": len(after - before)}


def _act(decision: Decision) -> tuple[object, ...]:
    """What is done to whom and where, reasons left out; empty for a wait, which does nothing."""
    match decision:
        case Wait():
            return ()
        case Preempt():
            return "preempt", decision.job_id
        case _:
            return type(decision).__name__, decision.job_id, decision.allocation


def _acts(decisions: Iterable[Decision]) -> set[tuple[object, ...]]:
    return {act for decision in decisions if (act := _act(decision))}


def _by_job(decisions: Iterable[Decision]) -> dict[str, list[Decision]]:
    found: dict[str, list[Decision]] = {}
    for decision in decisions:
        found.setdefault(decision.job_id, []).append(decision)
    return found


def _words(decisions: Iterable[Decision], topology: Topology) -> str:
    return ", then ".join(_told(decision, topology) for decision in decisions) or "nothing"


def _told(decision: Decision, topology: Topology) -> str:
    match decision:
        case Wait(_, level, until_s, reason):
            until = "for ever" if until_s == inf else f"until {until_s!r} s"
            return f"waits for one {topology.levels[level]} {until} ({reason})"
        case Preempt(_, by, reason):
            return f"loses its GPUs to {', '.join(by) or 'nobody'} ({reason})"
        case Start(_, allocation, level, reason) | Migrate(_, allocation, level, reason):
            gpus = ", ".join(f"{name} x{count}" for name, count in topology.named(allocation).items())
            verb = _VERBS[type(decision)]
            return f"{verb} {gpus}, one {topology.levels[level]} ({reason})"


_VERBS = {Start: "starts on", Migrate: "moves to", Resize: "goes on on"}


def _at(time_s: float) -> str:
    return "never" if time_s == inf else f"at {time_s!r} s"
