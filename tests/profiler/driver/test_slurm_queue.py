from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.schema import PointLink, PointShape
from profiler.driver.plan import NoRoomError, PlannedHost, PlannedRack
from profiler.driver.slurm_queue import SlurmQueue, only_gpu_type, place_soonest, racks_of
from profiler.launch.slurm import SlurmClient
from profiler.launch.slurm_nodes import PartitionNode, read_nodes
from profiler.spec import MeasurementRun
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.profiler.driver.worlds import make_run

RACKS = tuple(
    PlannedRack((PlannedHost(f"n{2 * rack + 1}", 8), PlannedHost(f"n{2 * rack + 2}", 8))) for rack in range(4)
)
PAIR = MeasurementRun("rack-2x1", "rack", PointShape(2, 1, "blocked", 1), ("n1", "n2"), None, make_run().spec)
APART = replace(PAIR, name="network-2x1", tier="network", shape=PointShape(2, 1, "blocked", 2))
ALONE = replace(PAIR, name="machine-1x1", tier="machine", shape=PointShape(1, 1, "blocked", 1))


def nodes(*free_s: float | None) -> dict[str, PartitionNode]:
    return {f"n{number}": PartitionNode(f"n{number}", "", when) for number, when in enumerate(free_s, 1)}


def test_a_run_takes_idle_nodes_first_then_those_that_are_free_the_soonest() -> None:
    assert place_soonest(PAIR, RACKS, nodes(5, 0, 0, 0)).hosts == ("n3", "n4")
    assert place_soonest(PAIR, RACKS, nodes(50, 0, 60, 0, 40, 45)).hosts == ("n5", "n6")
    assert place_soonest(PAIR, RACKS, nodes(inf, 0, 9, 9)).hosts == ("n3", "n4")
    assert place_soonest(APART, RACKS, nodes(50, 0, 60, 8)).hosts == ("n2", "n4")


def test_a_node_that_cannot_be_used_is_never_waited_for() -> None:
    assert place_soonest(PAIR, RACKS, nodes(None, 0, 60, 70)).hosts == ("n3", "n4")
    with pytest.raises(NoRoomError, match="drained, down or reserved"):
        place_soonest(PAIR, RACKS, nodes(None, 0, 0, None))


def test_a_run_stays_on_links_as_it_was_planned_for() -> None:
    fast, slow = PointLink(1e9, None), PointLink(1e8, None)
    racks = [
        PlannedRack(tuple(replace(host, link=link) for host in rack.hosts), link)
        for rack, link in zip(RACKS, (slow, fast, slow, slow), strict=True)
    ]
    assert place_soonest(replace(PAIR, link=slow), racks, nodes(7, 7, 0, 0)).hosts == ("n1", "n2")
    planned = replace(PAIR, link=fast, hosts=("n3", "n4"))
    assert place_soonest(planned, racks, nodes(0, 0, 9, 9)).hosts == ("n3", "n4")


@pytest.fixture
def client(local_slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSlurm]:
    for name, value in local_slurm.environment.items():
        monkeypatch.setenv(name, value)
    yield local_slurm
    local_slurm.wait_for(
        lambda: "profile-" not in local_slurm.run("squeue", "-h", "-o%j"), "no run to be left"
    )


def queue(local_slurm: LocalSlurm, wait_s: float = 60.0) -> SlurmQueue:
    read = partial(read_nodes, None, ())
    there = {node.name: node for node in read()}
    racks = racks_of(load_cluster(local_slurm.spec.conf.parent), "h100")
    return SlurmQueue(SlurmClient(there, None, 60.0, local_slurm.version()), racks, read, wait_s, poll_s=0.1)


def fill(local_slurm: LocalSlurm, nodes: str, minutes: int) -> str:
    """A job that has nodes to itself; its number, once it runs."""
    job = local_slurm.run(
        *("sbatch", "--parsable", f"-w{nodes}", "--exclusive", f"--time={minutes}", "--wrap", "sleep 300")
    ).strip()
    local_slurm.wait_for(
        lambda: local_slurm.run("squeue", "-h", "-o%t", "-j", job).strip() == "R", f"job {job} to run"
    )
    return job


def test_it_waits_for_busy_nodes_tells_which_and_takes_others_that_are_idle_sooner(
    client: LocalSlurm,
) -> None:
    fill(client, "n[1-4]", 9)
    first, second = fill(client, "n[5-6]", 5), fill(client, "n[7-8]", 7)
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        client.run("scancel", second)  # the user of the nodes that were to be free later is done already

    with queue(client).hold(PAIR, hear) as (run, slurm):
        assert run.hosts == ("n7", "n8")
        assert client.run("squeue", "-h", "-o%N", "-j", slurm.job or "").strip() == "n[7-8]"

    assert said[0].startswith("waiting for 2 nodes of one rack, n[5-6]: 0 of 2 idle; job ")
    assert "pending (" in said[0]
    assert said[0].endswith(" s so far")
    assert client.run("squeue", "-h", "-o%t", "-j", first).strip() == "R"


def test_when_a_node_is_drained_meanwhile_it_waits_for_others(client: LocalSlurm) -> None:
    fill(client, "n[1-8]", 5)
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            client.run("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
        else:
            client.run("scancel", "--user=root", "--name=wrap")

    with queue(client).hold(PAIR, hear) as (run, _):
        assert run.hosts == ("n3", "n4")
    assert "n[1-2]" in said[0]
    assert "n[3-4]" in said[1]


def test_it_gives_up_after_its_time_and_leaves_no_job(client: LocalSlurm) -> None:
    fill(client, "n[1-8]", 5)
    with (
        pytest.raises(NoRoomError, match=r"^gave up waiting for node n1: 0 of 1 idle; job \d+ pending \("),
        queue(client, wait_s=0.5).hold(ALONE, lambda _: None),
    ):
        pytest.fail("it got a node that is not free")


def test_it_waits_on_while_slurmctld_is_restarted(client: LocalSlurm) -> None:
    job = fill(client, "n[1-8]", 5)
    said: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            client.stop_controller()
        elif not client.controller_answers():
            client.start_controller()
            client.run("scancel", job)

    with queue(client).hold(ALONE, hear) as (run, _):
        assert len(run.hosts) == 1
    assert any("sinfo: " in line for line in said)


def test_it_does_not_wait_for_what_slurm_never_starts(client: LocalSlurm) -> None:
    short = queue(client)
    never = replace(short, slurm=replace(short.slurm, timeout_s=36000.0))
    client.run("scontrol", "update", "partition=gpu", "maxtime=60")
    with pytest.raises(NoRoomError, match="PartitionTimeLimit"), never.hold(ALONE, lambda _: None):
        pytest.fail("it got a node for longer than the partition allows")


SLURM = """\
NodeName=n[1-2] Gres=gpu:h100:8
NodeName=n3 Gres=gpu:a100:4
PartitionName=gpu Nodes=ALL
"""
TOPOLOGY = "SwitchName=rack0 Nodes=n[1-2]\nSwitchName=rack1 Nodes=n3\nSwitchName=spine Switches=rack[0-1]\n"


@pytest.fixture
def mixed(tmp_path: Path) -> Topology:
    (tmp_path / "slurm.conf").write_text(SLURM)
    (tmp_path / "topology.conf").write_text(TOPOLOGY)
    return load_cluster(tmp_path)


def test_hosts_have_a_rank_for_each_gpu_and_links_that_the_file_tells() -> None:
    racks = racks_of(load_cluster("demo"), only_gpu_type(load_cluster("demo"), None))

    machine = load_cluster("demo").machines[0]
    link = racks[0].hosts[0].link
    assert (racks[0].hosts[0].name, racks[0].hosts[0].ranks) == (machine.name, machine.gpus)
    uplink = load_cluster("demo").domains[0].uplink
    assert uplink is not None
    assert link == PointLink(uplink.bandwidth_bps, uplink.latency_s)


def test_links_that_slurms_files_do_not_tell_are_unknown(mixed: Topology) -> None:
    (rack,) = racks_of(mixed, "h100")

    assert rack.hosts == (PlannedHost("n1", 8), PlannedHost("n2", 8))
    assert rack.uplink is None


def test_of_several_gpu_types_one_must_be_chosen(mixed: Topology) -> None:
    assert only_gpu_type(mixed, "a100") == "a100"
    with pytest.raises(
        InputError, match="several GPU types and none asked for; --gpu-type can be a100, h100"
    ):
        only_gpu_type(mixed, None)
    with pytest.raises(InputError, match="no GPU type v100; --gpu-type can be a100, h100"):
        only_gpu_type(mixed, "v100")
