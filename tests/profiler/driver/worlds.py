"""Runs, findings and a place to launch them where ranks only say what they are told, for tests."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from dally.hosts.processes import Command
from dally.profiles.schema import (
    Bucket,
    Compute,
    Env,
    Model,
    PointLink,
    PointShape,
    Quality,
    Reduced,
    Timing,
)
from profiler.launch.rank_commands import Launcher
from profiler.messages import Failed, Finished, Message, Started, Trained, format_line
from profiler.spec import MeasurementRun, MeasurementSpec
from workloads.settings import Backend

ENV = Env(torch="2.13.0", hosts=("h1", "h2"))
LINK = PointLink(1e9, None)


def make_run(name: str = "rack-2x1", models: Sequence[str] = ("resnet18", "vgg11")) -> MeasurementRun:
    """Two ranks on two hosts of a rack."""
    spec = MeasurementSpec(tuple(models), Backend.GLOO, sweep_bytes=(4096,))
    return MeasurementRun(name, "rack", PointShape(2, 1, "blocked", 1), ("h1", "h2"), LINK, spec)


def trained(name: str, iteration_s: float = 0.2) -> Trained:
    """A model as measured."""
    model = Model(name, 1000, "float32", 4000, 8, "sgd", (Bucket(4000, 0.05),), None)
    compute = Compute(0.03, 0.06, 0.005, 0.04, 1.0)
    return Trained(model, compute, Timing(iteration_s, None, None, 5), Quality())


def reduced(size: int = 4096) -> Reduced:
    """An all-reduce of this size."""
    return Reduced(size, 0.001, None, None, 5)


def messages(*models: str) -> tuple[Message, ...]:
    """All that a run that measured these models finds."""
    return (Started(ENV), reduced(4096), reduced(4000), *map(trained, models), Finished(3.0))


@dataclass
class FakeLauncher(Launcher[MeasurementRun]):
    """Launches one process for a run, which prints what it was told and then ends, fails or stays.

    Attributes:
        says: What it prints, by the run's name; without, all that it was asked for.
        then: The shell command that it goes on with.
        too_large: Models that do not fit into memory: there a rank says so, and all end.
        launched: The runs so far.
    """

    says: dict[str, Sequence[Message]] = field(default_factory=dict)
    then: str = "true"
    too_large: Sequence[str] = ()
    launched: list[MeasurementRun] = field(default_factory=list)

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        self.launched.append(run)
        said = self.says.get(run.name, messages(*run.spec.models))
        then = self.then
        for index, model in enumerate(run.spec.models):
            if model in self.too_large:
                said = (*messages(*run.spec.models[:index])[:-1], Failed(model, "out of memory"))
                then = "exit 1"
                break
        lines = " ".join(shlex.quote(format_line(message)) for message in said)
        printed = f"printf '%s\\n' {lines}; " if said else ""
        return (Command("rank 0 on h1", ("sh", "-c", printed + then)),)
