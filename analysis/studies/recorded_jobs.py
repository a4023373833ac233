"""Holds what the recorder tells against the kernel's counters and against step times elsewhere.

Trainings run over gloo between network namespaces of this machine, unchanged but recorded. Each is recorded
on one host; from the profile of this one record follow its steps at the places of `PREDICTED`, which are then
measured, and what the order of ranks gives.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median, quantiles

import click

from analysis.studies.common import StudyCommand, publish, write_option
from dally.cluster.topology import Allocation, Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import DallyError
from dally.hosts.network import LocalNetwork, Traffic
from dally.hosts.network_spec import INTERFACE, NetworkSpec, Rack
from dally.markdown import table
from dally.profiles.collectives import CollectiveKind, ring_steps
from dally.profiles.iteration import predict
from dally.profiles.parallel.rank_choice import fastest_order
from dally.profiles.parallel.rank_placement import RankPlacer
from dally.profiles.schema import Profile
from profiler.launch.here import count_gpus
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import RankRecord, RecordedRun, read_run
from profiler.recorded.recorded_profile import RecordedJob, recorded_profile
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
        burst_bytes: What these send at once after a pause, for nothing.
        order: Hosts in the order of ranks, by their numbers rack by rack; empty: in that one.
    """

    name: str
    machines: tuple[tuple[int, ...], ...]
    rate_bps: float
    uplink_bps: float
    burst_bytes: int | None = None
    order: tuple[int, ...] = ()

    @property
    def network(self) -> NetworkSpec:
        """Racks of hosts with these links."""
        racks = (Rack(len(rack), self.rate_bps, self.uplink_bps, self.burst_bytes) for rack in self.machines)
        return NetworkSpec(tuple(racks))

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank; ranks fill one host after the other."""
        counts = [count for rack in self.machines for count in rack]
        filled = [*zip(self.network.hosts, counts, strict=True)]
        in_order = [filled[number] for number in self.order or range(len(filled))]
        return tuple(host for host, count in in_order for _ in range(count))

    @property
    def names(self) -> Mapping[str, str]:
        """What the cluster calls each host: names are in the order of ranks, as Slurm gives these."""
        return {host: f"n{number}" for number, host in enumerate(dict.fromkeys(self.hosts))}

    @property
    def topology(self) -> Topology:
        """The same hosts as a cluster; each has room for all ranks."""
        spec, rate, uplink = self.network, Link(self.rate_bps, LATENCY_S), Link(self.uplink_bps, LATENCY_S)
        attached = [
            Attached(Machine(self.names[host], len(self.hosts), "", LOOPBACK), spec.rack(host), rate)
            for host in spec.hosts
        ]
        switches = [Switch(rack, "core", uplink) for rack in spec.hosts_of]
        return build_topology(
            self.name, attached, [*switches, Switch("core", None)], ("machine", "rack", "network")
        )


BYTES = (
    RecordedTraining("DDP", "plain.py", ("ddp", "30", "256", "0", "8"), 2),
    RecordedTraining("FSDP2", "plain.py", ("fsdp", "30", "256", "0", "8"), 2),
    RecordedTraining("TP and FSDP2", "plain.py", ("tp", "30", "256", "0", "8"), 4),
    RecordedTraining("pipeline", "plain.py", ("pp", "30", "256", "0"), 2),
    RecordedTraining("HF Trainer, DDP", "hf_trainer.py", ("30",), 2),
    RecordedTraining("Lightning, DDP", "lightning_trainer.py", ("30",), 2),
    RecordedTraining("experts and DDP", "experts.py", ("30",), 4),
)
"""Of each, all that its ranks send is held against the counters of their hosts' links."""

TIMED = (
    RecordedTraining("DDP", "plain.py", ("ddp", "12", "320", "0.1", "8"), 4),
    RecordedTraining("FSDP2", "plain.py", ("fsdp", "12", "320", "0.1", "8"), 4),
    RecordedTraining("HSDP", "plain.py", ("hsdp", "12", "320", "0.1", "8"), 4),
    RecordedTraining("TP and FSDP2", "plain.py", ("tp", "12", "320", "0.1", "8"), 4),
)
"""Trainings of which all ranks do the same: their steps elsewhere are held against predictions."""

MESSAGING = (
    RecordedTraining("pipeline", "plain.py", ("pp", "12", "16", "0.3", "196608"), 4),
    RecordedTraining("experts", "experts.py", ("12", "8192", "0.1", "2"), 4),
    RecordedTraining("experts, uneven", "experts.py", ("12", "8192", "0.1", "4", "4"), 4),
)
"""The same of those whose ranks wait for single messages, behind links of `BURST_BYTES`."""

ON_GPU = (
    RecordedTraining("DDP", "plain.py", ("ddp", "14", "512", "0", "65536"), 4),
    RecordedTraining("DDP, accumulated", "plain.py", ("accumulate", "14", "512", "0", "65536"), 4),
    RecordedTraining("FSDP2", "plain.py", ("fsdp", "14", "512", "0", "65536"), 4),
    RecordedTraining("FSDP2, accumulated", "plain.py", ("accumulate-fsdp", "14", "512", "0", "65536"), 4),
    RecordedTraining("HSDP", "plain.py", ("hsdp", "14", "512", "0", "65536"), 4),
    RecordedTraining("TP and FSDP2", "plain.py", ("tp", "14", "512", "0", "4096"), 4),
    RecordedTraining("pipeline", "plain.py", ("pp", "14", "512", "0.1", "8192"), 4),
    RecordedTraining("pipeline, interleaved", "plain.py", ("interleaved", "14", "512", "0.1", "8192"), 4),
    RecordedTraining("experts, uneven", "experts.py", ("14", "32768", "0.1", "4", "4"), 4),
)
"""The same over NCCL, by ranks that share a GPU, at places of `FASTER`."""

LOOPBACK = Link(8e9, 2e-5)
"""What two cores carry between ranks on one host, about."""

LATENCY_S = 5e-5

BURST_BYTES = 32 * 1024
"""What links send at once where messages follow pauses: little, as real links send nothing for nothing.

At 60 to 200 Mb/s, 3 MB after a pause took 99 to 101 % of the time that the rate gives them, and 92 % with
the 256 KB that faster links need to keep their rate.
"""

HEADER_BYTES = 14 + 20 + 32
"""Of a packet, those of Ethernet, IPv4 and TCP with timestamps. Acknowledgements are nothing else."""

GLOO_BYTES = 3 * 48
"""What gloo adds to a message: its header, and word that the sender and the receiver are ready, each as long.

Source: struct Op and its use in gloo/transport/tcp/pair.h and pair.cc.
"""

_SEGMENTS = 2
"""Parts of what gloo's rings send in a step, each a message (gloo/allreduce.cc, allgather.cc)."""

ONE_GPU = {"NCCL_MULTI_RANK_GPU_ENABLE": 1, "NCCL_NET": "Socket"}
"""Ranks share the one GPU of this machine; each passes for the only one of a host (`NCCL_HOSTID`)."""

RECORDED = Place("1x4", ((4,),), 1e9, 1e9)
PREDICTED = (
    Place("2x2 in a rack, 100 Mb/s", ((2, 2),), 100e6, 1e9),
    Place("4x1 in a rack, 60 Mb/s", ((1, 1, 1, 1),), 60e6, 1e9),
    Place("2x2 in two racks, uplinks 75 Mb/s", ((2,), (2,)), 200e6, 75e6),
    Place("4x1 in two racks, uplinks 75 Mb/s", ((1, 1), (1, 1)), 200e6, 75e6),
    Place("3 hosts in two racks, uplinks 125 Mb/s", ((2, 1), (1,)), 200e6, 125e6),
)

FASTER = (
    Place("2x2 in a rack, 1 Gb/s", ((2, 2),), 1e9, 10e9),
    Place("4x1 in a rack, 600 Mb/s", ((1, 1, 1, 1),), 600e6, 10e9),
    Place("2x2 in two racks, uplinks 750 Mb/s", ((2,), (2,)), 2e9, 750e6),
)
"""For GPUs: ten times the links of `PREDICTED`."""

NAMED = (
    Place("racks one after the other", ((1, 1), (1, 1)), 200e6, 75e6, order=(0, 1, 2, 3)),
    Place("racks in turns", ((1, 1), (1, 1)), 200e6, 75e6, order=(0, 2, 1, 3)),
)
"""How names of hosts may go, by which Slurm gives ranks."""

ORDERED = (*TIMED[2:], *MESSAGING[:2])
"""Trainings of which some ranks send each other more than others do."""


def run_recorded(
    training: RecordedTraining, place: Place, folder: Path
) -> tuple[RecordedRun, Sequence[Traffic]]:
    """Train at a place.

    Returns:
        What the ranks recorded, and what the link of each host carried in all.

    Raises:
        DallyError: A rank failed.
    """
    hosts, ranks = place.hosts, range(training.ranks)
    with LocalNetwork(place.network) as network, _ended() as started:
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
                "NCCL_SOCKET_IFNAME": INTERFACE,
                "NCCL_HOSTID": f"rank{rank}",
                "OMP_NUM_THREADS": 1,
                **ONE_GPU,
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
        carried = network.traffic()
    return read_run(folder), [carried[host] for host in dict.fromkeys(hosts)]


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


@dataclass(frozen=True, slots=True)
class SentBytes:
    """What all ranks of a training sent, from the first connection to the last.

    Attributes:
        recorded: Of tensors, as the ranks recorded them.
        counted: By the kernel, on the links of all hosts.
        headers: Those of packets in what was counted.
        gloo: Its own words in what was counted.
    """

    recorded: float
    counted: float
    headers: float
    gloo: float

    @property
    def difference(self) -> float:
        """What was recorded against what was counted of tensors, less 1."""
        return self.recorded / (self.counted - self.headers - self.gloo) - 1


def sent_bytes(records: Sequence[RankRecord], links: Sequence[Traffic]) -> SentBytes:
    """What was recorded and what was counted.

    All ranks together: the root of a broadcast sends more than the others, and no record says which it is.

    Args:
        records: Of all ranks, each on a host of its own.
        links: Of all hosts, what they carried in all.
    """
    calls = [
        (each, len(record.groups[each.group].ranks))
        for record in records
        for each in record.collectives
        if each.group in record.groups
    ]
    return SentBytes(
        recorded=sum(call.sent_bytes(ranks) for call, ranks in calls),
        counted=sum(link.sent_bytes for link in links),
        headers=sum(link.sent_packets for link in links) * HEADER_BYTES,
        gloo=sum(gloo_messages(call.kind, ranks) for call, ranks in calls) * GLOO_BYTES,
    )


def gloo_messages(kind: CollectiveKind, ranks: int) -> float:
    """Messages by which gloo does a collective, of each rank of a group, in the mean."""
    match kind:
        case CollectiveKind.ALL_REDUCE | CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER:
            return _SEGMENTS * ring_steps(kind, ranks)
        case (
            CollectiveKind.BROADCAST | CollectiveKind.REDUCE | CollectiveKind.SCATTER | CollectiveKind.GATHER
        ):
            return (ranks - 1) / ranks  # one to or from each but the root
        case _:
            return ring_steps(kind, ranks)


def bytes_table(folder: Path) -> str:
    """What records and counters tell of the bytes that all ranks send."""
    rows = []
    for training in BYTES:
        place = Place("a rack", ((1,) * training.ranks,), 1e9, 1e9)
        run, links = run_recorded(training, place, _made(folder / "bytes" / _named(training.name)))
        sent = sent_bytes(run.records, links)
        plan = recognise(run.records).plan
        amounts = sent.recorded, sent.counted, sent.headers, sent.gloo
        words = [f"{amount / 1e6:.2f}" for amount in amounts]
        rows.append([training.name, str(training.ranks), str(plan), *words, f"{sent.difference:+.1%}"])
        click.echo(" | ".join(rows[-1]), err=True)
    headings = ("training", "ranks", "plan", "MB recorded", "MB counted", "of these headers", "gloo's own")
    return table((*headings, "difference"), rows)


def _steps(folder: Path) -> tuple[float, ...]:
    """Step times that the first rank printed, without the first three."""
    lines = (folder / "rank-0.log").read_text().splitlines()
    return tuple(float(line.split()[2]) for line in lines if line.startswith("step time "))[3:]


def profile_at(run: RecordedRun, place: Place) -> tuple[Profile, Topology, Allocation]:
    """The profile of a record on one host, the first one of a place; and where its ranks are there."""
    records = tuple(replace(record, host=place.names[place.hosts[0]]) for record in run.records)
    topology = place.topology
    profile = recorded_profile(RecordedJob("recorded"), [replace(run, records=records)], topology)
    counts = Counter(topology.machine_index[place.names[host]] for host in place.hosts)
    return profile, topology, tuple(sorted(counts.items()))


def predict_step(run: RecordedRun, place: Place) -> float:
    """The step of a training at a place, from its record on one host."""
    profile, topology, allocation = profile_at(run, place)
    ranks = RankPlacer(topology).place(allocation)
    return predict(profile, topology.shape(allocation), ranks=ranks).iteration_s


def ordered_for(run: RecordedRun, place: Place) -> Place:
    """The same hosts, one rank on each, in the order that `dally rank-order` gives them for a record."""
    profile, topology, allocation = profile_at(run, place)
    by_name = [topology.machine_index[place.names[host]] for host in place.hosts]
    shape, plan = topology.shape(allocation), recognise(run.records).plan
    order = fastest_order(
        topology, by_name, plan, 1, lambda ranks: predict(profile, shape, ranks=ranks).iteration_s
    )
    places = [by_name.index(machine) for machine in order]
    return replace(place, order=tuple(place.order[number] for number in places))


def times_table(
    folder: Path,
    trainings: Sequence[RecordedTraining],
    places: Sequence[Place] = PREDICTED,
    burst_bytes: int | None = None,
    on_gpu: bool = False,
) -> str:
    """Predicted and measured steps at places where nothing was recorded.

    Args:
        folder: For records and logs.
        trainings: Which.
        places: Where.
        burst_bytes: Of the links of these places; None: that of other local networks.
        on_gpu: Whether they are of ranks that share a GPU, and train over NCCL.

    Raises:
        DallyError: There is no GPU, or a rank failed.
    """
    if on_gpu and not count_gpus():
        raise DallyError("this table needs an NVIDIA GPU: nvidia-smi lists none here")
    rows, errors = [], []
    for training in trainings:
        within = folder / "times" / _named(training.name)
        run, _ = run_recorded(training, RECORDED, _made(within / _named(RECORDED.name)))
        click.echo(f"{training.name}, {RECORDED.name}: {run.records[0].step_s:.3f} s", err=True)
        for place in (replace(each, burst_bytes=burst_bytes) for each in places):
            at = _made(within / _named(place.name))
            run_recorded(training, place, at)
            steps_s = _steps(at)
            predicted_s, measured_s = predict_step(run, place), median(steps_s)
            errors.append(predicted_s / measured_s - 1)
            low, *_, high = quantiles(steps_s, n=10)
            rows.append(
                [
                    training.name,
                    place.name,
                    f"{run.records[0].step_s:.3f}",
                    f"{predicted_s:.3f}",
                    f"{measured_s:.3f}",
                    f"{low:.3f} to {high:.3f}",
                    f"{errors[-1]:+.1%}",
                ]
            )
            click.echo(" | ".join(rows[-1]), err=True)
    sizes = [abs(error) for error in errors]
    headings = ("training", "place", "recorded on one host, s", "predicted, s", "measured, s")
    body = table((*headings, "p10 to p90", "error"), rows)
    return f"{body}\n\nMean error {fmean(sizes):.1%}, worst {max(sizes):.1%}, of {len(errors)} steps."


def orders_table(folder: Path) -> str:
    """What the order that a record's profile chooses gives over that of names, predicted and measured."""
    rows = []
    for training in ORDERED:
        within = folder / "orders" / _named(training.name)
        run, _ = run_recorded(training, RECORDED, _made(within / _named(RECORDED.name)))
        burst_bytes = BURST_BYTES if training in MESSAGING else None
        named = [replace(place, burst_bytes=burst_bytes) for place in NAMED]
        chosen = [ordered_for(run, place) for place in named]
        measured_s = dict[tuple[int, ...], float]()
        for place in (*named, *chosen):
            if place.order not in measured_s:
                at = _made(within / "".join(map(str, place.order)))
                run_recorded(training, place, at)
                measured_s[place.order] = median(_steps(at))
        for by_name, in_order in zip(named, chosen, strict=True):
            predicted = predict_step(run, by_name), predict_step(run, in_order)
            measured = measured_s[by_name.order], measured_s[in_order.order]
            seconds = [f"{step_s:.3f}" for step_s in (*predicted, *measured)]
            gains = [f"{after_s / before_s - 1:+.1%}" for before_s, after_s in (predicted, measured)]
            rows.append([training.name, by_name.name, ", ".join(in_order.hosts), *seconds, *gains])
            click.echo(" | ".join(rows[-1]), err=True)
    steps = "predicted by name, s", "in order, s", "measured by name, s", "in order, s"
    return table(("training", "names", "hosts in order", *steps, "predicted", "measured"), rows)


def _named(name: str) -> str:
    return "".join(each if each.isalnum() else "-" for each in name)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


_TABLES: Mapping[str, Callable[[Path], str]] = {
    "recorded-bytes": bytes_table,
    "recorded-steps": partial(times_table, trainings=TIMED),
    "recorded-messages": partial(times_table, trainings=MESSAGING, burst_bytes=BURST_BYTES),
    "recorded-orders": orders_table,
}
_GPU_TABLES: Mapping[str, Callable[[Path], str]] = {
    "recorded-nccl": partial(times_table, trainings=ON_GPU, places=FASTER, on_gpu=True)
}


@click.command(cls=StudyCommand)
@click.option(
    "--only",
    type=click.Choice([*_TABLES, *_GPU_TABLES]),
    help="One of the tables; without, all but that of a GPU.",
)
@write_option
def main(only: str | None, page: Path | None) -> None:
    """Record trainings between network namespaces; an hour on two idle cores.

    The table of a GPU takes a quarter of an hour there.
    """
    tables = {only: {**_TABLES, **_GPU_TABLES}[only]} if only else _TABLES
    with tempfile.TemporaryDirectory() as folder:
        made = [(name, make(Path(folder))) for name, make in tables.items()]
    publish(made, page)


if __name__ == "__main__":
    main()
