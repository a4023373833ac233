"""Events folded into who held what, who waited and what timers came to."""

from analysis.report.history import DOWN, HeldGpus, RunHistory
from tests.analysis.report.folders import Event, started, waits

LEVELS = ["machine", "rack", "network"]


def folded(events: list[Event], end_s: float = 100, machines: dict[str, int] | None = None) -> RunHistory:
    history = RunHistory(LEVELS, {"a": 0, "b": 1}, machines)
    for event in events:
        history.add(event)
    history.close(end_s)
    return history


def submitted(t: float, job: str, gpus: int = 1) -> Event:
    return {"t": t, "event": "submit", "job": job, "gpus": gpus, "model": ""}


def ended(t: float, job: str) -> Event:
    return {"t": t, "event": "end", "job": job, "status": "COMPLETED"}


def preempted(t: float, job: str) -> Event:
    return {"t": t, "event": "preempt", "job": job, "by": [], "reason": "lease over"}


def test_a_job_holds_the_lowest_free_gpus_from_its_start_to_its_end() -> None:
    history = folded([started(0, "a", {"m": 2}), started(5, "b", {"m": 1}), ended(10, "a"), ended(20, "b")])
    assert history.held == [HeldGpus(0, 10, "m", (0, 1), 0, 0), HeldGpus(5, 20, "m", (2,), 0, 1)]
    assert history.machines() == {"m": 3}


def test_gpus_given_back_are_taken_again() -> None:
    history = folded([started(0, "a", {"m": 2}), ended(10, "a"), started(10, "b", {"m": 1}), ended(20, "b")])
    assert history.held[1].slots == (0,)
    assert history.machines() == {"m": 2}


def test_a_move_ends_one_stretch_and_begins_another() -> None:
    history = folded(
        [started(0, "a", {"m": 1, "n": 1}, "rack"), started(8, "a", {"m": 2}, kind="migrate"), ended(9, "a")]
    )
    assert [(held.begin_s, held.end_s, held.machine, held.level) for held in history.held] == [
        (0, 8, "m", 1),
        (0, 8, "n", 1),
        (8, 9, "m", 0),
    ]
    assert history.moves == 1


def test_what_runs_and_waits_at_the_end_does_so_until_then() -> None:
    history = folded([submitted(0, "a"), started(10, "a", {"m": 1}), submitted(30, "b")])
    assert history.held == [HeldGpus(10, 100, "m", (0,), 0, 0)]
    assert history.waits == [(0, 10), (30, 100)]


def test_a_preempted_job_waits_again() -> None:
    history = folded(
        [
            submitted(0, "a"),
            started(0, "a", {"m": 1}),
            preempted(40, "a"),
            started(55, "a", {"m": 1}),
            ended(60, "a"),
        ]
    )
    assert history.waits == [(40, 55)]


def test_a_machine_that_is_down_is_held_by_nobody() -> None:
    down = {"t": 10, "event": "machine_down", "machine": "m"}
    up = {"t": 30, "event": "machine_up", "machine": "m"}
    assert folded([down, up], machines={"m": 2}).held == [HeldGpus(10, 30, "m", (0, 1), DOWN, DOWN)]


def test_a_timer_runs_from_the_begin_of_the_wait_and_learns_where_the_job_started() -> None:
    events = [
        submitted(0, "a", 4),
        waits(3, "a", "machine", 30),
        waits(30, "a", "rack", 60),
        started(50, "a", {"m": 2, "n": 2}, "rack"),
        ended(60, "a"),
    ]
    first, second = folded(events).timers
    assert (first.level, first.delay_s, first.placed, first.waited_s, first.gpus) == (0, 30, 1, 50, 4)
    assert (second.level, second.delay_s, second.placed) == (1, 60, 1)


def test_a_wait_after_a_preemption_has_a_timer_of_its_own() -> None:
    events = [
        submitted(0, "a"),
        started(0, "a", {"m": 1}),
        preempted(40, "a"),
        waits(40, "a", "machine", 64),
    ]
    (timer,) = folded(events).timers
    assert (timer.delay_s, timer.placed) == (24, None)


def test_waits_without_an_end_or_without_patience_are_no_timers() -> None:
    assert (
        folded([submitted(5, "a"), waits(5, "a", "machine", None), waits(5, "a", "machine", 5)]).timers == []
    )
