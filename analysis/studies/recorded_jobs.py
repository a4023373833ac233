"""Holds what the recorder tells against the kernel's counters and against step times elsewhere.

Trainings run over gloo between network namespaces of this machine, unchanged but recorded. Each trains at the
places of `LEARNT`; from these and its record follow the step times at the others, which are then measured.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, quantiles

import click
import numpy

from analysis.studies.common import StudyCommand, publish, write_option
from dally.errors import DallyError
from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import INTERFACE, NetworkSpec, Rack
from dally.markdown import table
from profiler.recorded.link_traffic import RankHosts, link_seconds
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import RankRecord, RecordedRun, read_run
from workloads import recorder

SCRIPTS = Path(__file__).with_name("recorded_trainings")
_LONGEST_S = 900.0


@dataclass(frozen=True, slots=True)
class RecordedTraining:
    """A script and its arguments."""

    name: str
    script: str
    arguments: tuple[str, ...]
    ranks: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where four ranks train.

    Attributes:
        name: What the table calls it.
        machines: Ranks of each host, those of a rack together.
        rate_bps: Of a host's link.
        uplink_bps: Of a rack's.
    """

    name: str
    machines: tuple[tuple[int, ...], ...]
    rate_bps: float
    uplink_bps: float

    @property
    def network(self) -> NetworkSpec:
        """Racks of hosts with these links."""
        return NetworkSpec(tuple(Rack(len(rack), self.rate_bps, self.uplink_bps) for rack in self.machines))

    @property
    def placement(self) -> RankHosts:
        """Which rank lies where; ranks fill one host after the other."""
        spec = self.network
        counts = [count for rack in self.machines for count in rack]
        hosts = [host for host, count in zip(spec.hosts, counts, strict=True) for _ in range(count)]
        racks = {host: spec.rack(host) for host in spec.hosts}
        rates = dict.fromkeys(spec.hosts, self.rate_bps) | dict.fromkeys(spec.hosts_of, self.uplink_bps)
        return RankHosts(hosts, racks, rates)


BYTES = (
    RecordedTraining("DDP", "plain.py", ("ddp", "30", "256", "0"), 2),
    RecordedTraining("FSDP2", "plain.py", ("fsdp", "30", "256", "0"), 2),
    RecordedTraining("TP and FSDP2", "plain.py", ("tp", "30", "256", "0"), 4),
    RecordedTraining("pipeline", "plain.py", ("pp", "30", "256", "0"), 2),
    RecordedTraining("HF Trainer, DDP", "hf_trainer.py", ("30",), 2),
    RecordedTraining("Lightning, DDP", "lightning_trainer.py", ("30",), 2),
    RecordedTraining("experts and DDP", "experts.py", ("30",), 4),
)
"""Of each, all that a rank sends is held against the counters of its host's link."""

TIMED = (
    RecordedTraining("DDP", "plain.py", ("ddp", "12", "160", "0.1"), 4),
    RecordedTraining("FSDP2", "plain.py", ("fsdp", "12", "160", "0.1"), 4),
    RecordedTraining("TP and FSDP2", "plain.py", ("tp", "12", "160", "0.1"), 4),
)

LEARNT = (
    Place("1x4", ((4,),), 1e9, 1e9),
    Place("4x1 in a rack, 80 Mb/s", ((1, 1, 1, 1),), 80e6, 1e9),
    Place("4x1 in a rack, 40 Mb/s", ((1, 1, 1, 1),), 40e6, 1e9),
)
PREDICTED = (
    Place("2x2 in a rack, 40 Mb/s", ((2, 2),), 40e6, 1e9),
    Place("4x1 in a rack, 25 Mb/s", ((1, 1, 1, 1),), 25e6, 1e9),
    Place("2x2 in two racks, uplinks 30 Mb/s", ((2,), (2,)), 80e6, 30e6),
    Place("4x1 in two racks, uplinks 30 Mb/s", ((1, 1), (1, 1)), 80e6, 30e6),
    Place("3 hosts in two racks, uplinks 50 Mb/s", ((2, 1), (1,)), 80e6, 50e6),
)


def run_recorded(training: RecordedTraining, place: Place, folder: Path) -> tuple[RecordedRun, int]:
    """Train at a place.

    Returns:
        What the ranks recorded, and the bytes that the first host sent, headers included.

    Raises:
        DallyError: A rank failed.
    """
    hosts, ranks = place.placement.hosts, range(training.ranks)
    with LocalNetwork(place.network) as network, _ended() as started:
        before = network.traffic()[hosts[0]].sent_bytes
        for rank in ranks:
            alike = [other for other in ranks if hosts[other] == hosts[rank]]
            variables = {
                "RANK": rank,
                "WORLD_SIZE": training.ranks,
                "LOCAL_RANK": alike.index(rank),
                "LOCAL_WORLD_SIZE": len(alike),
                "GROUP_RANK": list(dict.fromkeys(hosts)).index(hosts[rank]),
                "GROUP_WORLD_SIZE": len({*hosts}),
                "TORCHELASTIC_RUN_ID": "study",
                "MASTER_ADDR": network.address(hosts[0]),
                "MASTER_PORT": 29500,
                "GLOO_SOCKET_IFNAME": INTERFACE,
                "OMP_NUM_THREADS": 1,
            }
            words = {name: str(value) for name, value in variables.items()}
            argv = (sys.executable, str(SCRIPTS / training.script), *training.arguments)
            with (folder / f"rank-{rank}.log").open("w") as log:
                started.append(
                    subprocess.Popen(
                        network.command(hosts[rank], argv),
                        env={**os.environ, **words, **recorder.environment(folder, os.environ)},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        for rank, process in enumerate(started):
            if process.wait(_LONGEST_S):
                said = (folder / f"rank-{rank}.log").read_text().splitlines()[-1:]
                raise DallyError(f"{training.name} at {place.name}: rank {rank} failed: {said}")
        sent = network.traffic()[hosts[0]].sent_bytes - before
    return read_run(folder), sent


@contextmanager
def _ended() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes of which none is left afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def all_sent(record: RankRecord) -> float:
    """Bytes that a rank sent in the whole training."""
    return sum(
        each.sent_bytes(len(record.groups[each.group].ranks))
        for each in record.collectives
        if each.group in record.groups
    )


def bytes_table(folder: Path) -> str:
    """What records and counters tell of the bytes that the first rank sends."""
    rows = []
    for training in BYTES:
        place = Place("a rack", ((1,) * training.ranks,), 1e9, 1e9)
        run, counted = run_recorded(training, place, _made(folder / "bytes" / _named(training.name)))
        recorded = all_sent(run.records[0])
        plan = recognise(run.records).plan
        rows.append(
            [
                training.name,
                str(training.ranks),
                str(plan),
                f"{recorded / 1e6:.2f}",
                f"{counted / 1e6:.2f}",
                f"{recorded / counted - 1:+.1%}",
            ]
        )
        click.echo(" | ".join(rows[-1]), err=True)
    return table(("training", "ranks", "plan", "MB recorded", "MB counted", "difference"), rows)


@dataclass(frozen=True, slots=True)
class TimedPlace:
    """A training at a place: seconds of its links in a step, and steps in seconds."""

    place: Place
    busy_s: float
    steps_s: tuple[float, ...]

    @property
    def step_s(self) -> float:
        """The median step."""
        return median(self.steps_s)


def measure(
    training: RecordedTraining, place: Place, reference: RecordedRun | None, folder: Path
) -> tuple[TimedPlace, RecordedRun]:
    """Train at a place; what its links carry is told by the reference, or by this very run."""
    run, _ = run_recorded(training, place, folder)
    busy_s = link_seconds((reference or run).records, place.placement)
    return TimedPlace(place, busy_s, _steps(folder)), run


def _steps(folder: Path) -> tuple[float, ...]:
    """Step times that the first rank printed, without the first three."""
    lines = (folder / "rank-0.log").read_text().splitlines()
    return tuple(float(line.split()[2]) for line in lines if line.startswith("step time "))[3:]


def predict_step(learnt: Sequence[TimedPlace], busy_s: float) -> float:
    """A step at a place whose links are busy for so long: a line through what was learnt, never below it."""
    fastest = min(each.step_s for each in learnt)
    apart = [each for each in learnt if each.busy_s]
    factor, base_s = numpy.polyfit([each.busy_s for each in apart], [each.step_s for each in apart], 1)
    return max(fastest, float(base_s + factor * busy_s))


def times_table(folder: Path) -> str:
    """Predicted and measured steps at the places that were not learnt."""
    rows, errors = [], []
    for training in TIMED:
        within = folder / "times" / _named(training.name)
        learnt, reference = [], None
        for place in LEARNT:
            timed, run = measure(training, place, reference, _made(within / _named(place.name)))
            reference = reference or run
            learnt.append(timed)
            click.echo(f"{training.name}, {place.name}: {timed.step_s:.3f} s", err=True)
        for place in PREDICTED:
            timed, _ = measure(training, place, reference, _made(within / _named(place.name)))
            predicted_s = predict_step(learnt, timed.busy_s)
            errors.append(predicted_s / timed.step_s - 1)
            low, *_, high = quantiles(timed.steps_s, n=10)
            rows.append(
                [
                    training.name,
                    place.name,
                    f"{predicted_s:.3f}",
                    f"{timed.step_s:.3f}",
                    f"{low:.3f} to {high:.3f}",
                    f"{errors[-1]:+.1%}",
                ]
            )
            click.echo(" | ".join(rows[-1]), err=True)
    sizes = [abs(error) for error in errors]
    body = table(("training", "place", "predicted, s", "measured, s", "p10 to p90", "error"), rows)
    return f"{body}\n\nMean error {fmean(sizes):.1%}, worst {max(sizes):.1%}, of {len(errors)} steps."


def _named(name: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in name)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@click.command(cls=StudyCommand)
@click.option(
    "--only", type=click.Choice(["recorded-bytes", "recorded-steps"]), help="One of the two tables."
)
@write_option
def main(only: str | None, page: Path | None) -> None:
    """Record trainings between network namespaces; some minutes on two idle cores."""
    tables = {"recorded-bytes": bytes_table, "recorded-steps": times_table}
    with tempfile.TemporaryDirectory() as folder:
        made = [(name, make(Path(folder))) for name, make in tables.items() if only in (None, name)]
    publish(made, page)


if __name__ == "__main__":
    main()
