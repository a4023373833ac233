import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.hosts.processes import Command, HeardLine, ProcessError, Start
from dally.profiles.schema import PointLink, PointShape
from profiler.driver import step_runs
from profiler.driver.measure import MeasureError
from profiler.driver.step_log import parse_steps_from
from profiler.driver.step_runs import StepMeasurement, StepRun, StepRunFolder, measure_steps
from profiler.launch.rank_commands import Launcher
from profiler.spec import PlannedRun

TIMEOUT_S = 100.0
NEAR = PlannedRun("machine-1x2", "machine", PointShape(1, 2, "blocked", 1), ("h1",), None)
FAR = PlannedRun("rack-2x1", "rack", PointShape(2, 1, "blocked", 1), ("h1", "h2"), PointLink(1e9, None))


class FakeProgramPlace(Launcher[PlannedRun]):
    """A place where one command for each host is launched."""

    def commands(self, run: PlannedRun) -> tuple[Command, ...]:
        return tuple(Command(f"{run.name} on {host}", ("train",), host=host) for host in run.hosts)


@pytest.fixture
def folder(tmp_path: Path) -> StepRunFolder:
    return StepRunFolder(tmp_path)


@pytest.fixture
def prints(monkeypatch: pytest.MonkeyPatch) -> dict[str, Sequence[str]]:
    """What commands print, by their names; then they run on until the time limit."""
    said: dict[str, Sequence[str]] = {}
    clock_s = [0.0]

    def run(
        commands: Sequence[Command], start: Start, hear: Callable[[HeardLine], None], timeout_s: float
    ) -> None:
        for command in commands:
            for text in said.get(command.name, ()):
                hear(HeardLine(command, False, text))
        clock_s[0] += timeout_s
        raise ProcessError(f"{commands[0].name} took longer than {timeout_s:g} s")

    monkeypatch.setattr(step_runs, "run_and_hear", run)
    monkeypatch.setattr(step_runs, "monotonic", lambda: clock_s[0])
    return said


def measure(folder: StepRunFolder, runs: Sequence[PlannedRun]) -> tuple[str, ...]:
    asked = StepMeasurement(("train",), parse_steps_from("jsonl"), 2, 10, TIMEOUT_S)
    return measure_steps(runs, FakeProgramPlace(), asked, folder, lambda text: None)


def steps(count: int) -> tuple[str, ...]:
    return tuple(f'{{"seconds": {number}}}' for number in range(1, count + 1))


def test_a_run_that_told_some_steps_until_the_time_limit_is_measured(
    folder: StepRunFolder, prints: dict[str, Sequence[str]]
) -> None:
    prints["machine-1x2 on h1"] = steps(6)
    assert measure(folder, [NEAR]) == ()
    assert folder.read()["machine-1x2"].seconds == (3.0, 4.0, 5.0, 6.0)


def test_a_run_that_told_too_few_until_then_is_not(
    folder: StepRunFolder, prints: dict[str, Sequence[str]]
) -> None:
    prints["machine-1x2 on h1"] = ("an error of no matter", *steps(4))
    with pytest.raises(
        MeasureError, match=r"machine-1x2: machine-1x2 on h1 took longer than 100 s; all that"
    ):
        measure(folder, [NEAR])


def test_any_machine_may_tell_the_steps_and_machines_are_not_mixed(
    folder: StepRunFolder, prints: dict[str, Sequence[str]]
) -> None:
    prints["rack-2x1 on h1"] = steps(3)
    prints["rack-2x1 on h2"] = steps(20)
    assert measure(folder, [FAR]) == ()
    assert folder.read()["rack-2x1"].seconds == tuple(map(float, range(3, 13)))


def test_after_one_is_measured_a_run_that_fails_is_told_at_the_end(
    folder: StepRunFolder, prints: dict[str, Sequence[str]]
) -> None:
    prints["machine-1x2 on h1"] = steps(20)
    (problem,) = measure(folder, [NEAR, FAR])
    assert problem.startswith("rack-2x1: rack-2x1 on h1 took longer")
    assert list(folder.read()) == ["machine-1x2"]


def test_the_time_of_a_step_is_the_median_under_the_link_of_the_run() -> None:
    seconds = tuple(map(float, range(1, 12)))
    time = StepRun(FAR, ("train",), "jsonl", seconds, "2026-11-26T00:00:00+00:00").step_time
    assert (time.tier, time.shape, time.link) == ("rack", FAR.shape, FAR.link)
    assert (time.step.median_s, time.step.p10_s, time.step.p90_s, time.step.n) == (6.0, 2.0, 10.0, 11)


SHORT = StepRun(FAR, ("train",), "jsonl", (1.0, 1.0, 1.0), "2026-11-26T00:00:00+00:00")


@pytest.mark.parametrize(
    "text", ["{", "[]", json.dumps({"run": 1}), json.dumps({**asdict(SHORT), "seconds": [1.0]})]
)
def test_a_file_that_is_no_measured_run_is_named(folder: StepRunFolder, text: str) -> None:
    folder.path("rack-2x1").write_text(text)
    with pytest.raises(InputError, match=r"rack-2x1\.json: "):
        folder.read()
