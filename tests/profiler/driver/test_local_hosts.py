import os
from dataclasses import replace

import pytest

from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import NetworkSpec, Rack
from profiler.driver import local_hosts
from profiler.driver.local_hosts import LocalHosts, racks_of
from profiler.driver.plan import plan_runs, usual_spreads
from profiler.spec import MeasurementRun, MeasurementSpec
from workloads.settings import Backend

SPEC = NetworkSpec((Rack(2, 1e9, 500e6), Rack(1, 1e9, None)))


def runs(spec: MeasurementSpec) -> dict[str, MeasurementRun]:
    racks = racks_of(SPEC, ranks=1)
    return {run.name: run for run in plan_runs(usual_spreads(racks), racks, spec)}


def test_a_run_knows_the_slowest_link_and_none_where_one_is_not_shaped() -> None:
    planned = runs(MeasurementSpec(("resnet18",), Backend.GLOO))

    link = planned["rack-2x1"].link
    assert link is not None
    assert link.bandwidth_bps == 1e9
    assert planned["network-2x1"].link is None


def test_gloo_is_sent_over_the_emulated_link() -> None:
    run = runs(MeasurementSpec(("resnet18",), Backend.GLOO))["network-2x1"]
    commands = LocalHosts(LocalNetwork(SPEC), most_ranks=4).commands(run)

    assert [item.env["GLOO_SOCKET_IFNAME"] for item in commands] == ["eth0", "eth0"]
    assert [item.env["DALLY_HOST"] for item in commands] == ["r1h1", "r2h1"]
    assert {item.env["MASTER_ADDR"] for item in commands} == {"10.1.0.1"}


def test_ranks_share_the_cores_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run = runs(MeasurementSpec(("resnet18",), Backend.GLOO))["machine-1x1"]

    assert LocalHosts(LocalNetwork(SPEC), most_ranks=4).commands(run)[0].env["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(("gpus", "taken"), [(1, ["0", "0"]), (2, ["0", "1"])])
def test_nccl_takes_every_host_for_a_machine_of_its_own_that_shares_the_gpus(
    gpus: int, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_hosts, "count_gpus", lambda: gpus)
    run = runs(MeasurementSpec(("resnet18",), Backend.NCCL))["rack-2x1"]
    commands = LocalHosts(LocalNetwork(SPEC), most_ranks=4).commands(run)

    assert [item.env["NCCL_HOSTID"] for item in commands] == ["r1h1", "r1h2"]
    assert [item.env["LOCAL_RANK"] for item in commands] == taken
    assert {item.env["NCCL_SOCKET_IFNAME"] for item in commands} == {"=eth0"}


def test_a_command_is_shown_as_it_runs_inside_its_host() -> None:
    run = runs(MeasurementSpec(("resnet18",), Backend.GLOO))["rack-2x1"]
    hosts = LocalHosts(LocalNetwork(SPEC), most_ranks=4)
    command = replace(hosts.commands(run)[1], argv=("python", "a b"), env={"RANK": "1"})

    assert hosts.shown(command) == "ip netns exec r1h2 env RANK=1 python 'a b'"
