import os
from pathlib import Path

import pytest

from dally.profiles.schema import PointShape
from profiler.hosts.rank_commands import rank_argv
from profiler.hosts.slurm import (
    IdleNode,
    Slurm,
    SlurmError,
    configuration_folder,
    idle_nodes,
    parse_nodes,
    srun_argv,
)
from profiler.orders import Run, parse_order
from testbed.local_slurm import LocalSlurm
from tests.profiler.drive.worlds import make_run

SINFO = """\
n1|10.0.0.1|idle|gpu*
n1|10.0.0.1|idle|other
n2|10.0.0.2|mix|gpu*
n3|10.0.0.3|idle~|gpu*
n4|10.0.0.4|idle|gpu*
n5|10.0.0.5|idle|other
"""


def test_only_idle_nodes_of_the_partition_count() -> None:
    assert parse_nodes(SINFO, "gpu") == (IdleNode("n1", "10.0.0.1"), IdleNode("n4", "10.0.0.4"))
    assert parse_nodes(SINFO, "other") == (IdleNode("n1", "10.0.0.1"), IdleNode("n5", "10.0.0.5"))


def test_without_a_partition_the_default_one_counts() -> None:
    assert parse_nodes(SINFO, None) == parse_nodes(SINFO, "gpu")


def test_an_unknown_partition_is_refused_with_those_there_are() -> None:
    with pytest.raises(SlurmError, match="no partition lab; --partition can be gpu, other"):
        parse_nodes(SINFO, "lab")
    with pytest.raises(SlurmError, match="no default partition; --partition can be other"):
        parse_nodes("n1|10.0.0.1|idle|other\n", None)


def test_srun_takes_whole_nodes_and_puts_the_ranks_on_them_in_our_order() -> None:
    run = Run("network-2x2", "network", PointShape(2, 2, "blocked", 2), ("n3", "n1"), None, make_run().order)

    (command,) = Slurm({"n1": "10.0.0.1", "n3": "10.0.0.3"}, "gpu", 90.0).commands(run)

    assert {
        "--partition=gpu",
        "--nodes=2",
        "--ntasks=4",
        "--nodelist=n3,n3,n1,n1",
        "--distribution=arbitrary",
        "--gres=gpu:2",
        "--exclusive",
        "--kill-on-bad-exit=1",
        "--time=2",
    } <= set(command.argv)
    assert any(argument.startswith("--export=ALL,MASTER_ADDR=10.0.0.3,") for argument in command.argv)
    assert parse_order(command.argv[-1]) == run.order


def test_a_real_slurm_puts_the_ranks_in_our_order(lab: LocalSlurm) -> None:
    run = Run("network-2x2", "network", PointShape(2, 2, "blocked", 2), ("n3", "n1"), None, make_run().order)
    options = srun_argv(run, "127.0.0.1", None, 60.0)[: -len(rank_argv(run))]

    told = lab.run(*options, "sh", "-c", "echo $SLURM_PROCID $SLURMD_NODENAME $SLURM_LOCALID")

    assert sorted(told.splitlines()) == ["0 n3 0", "1 n3 1", "2 n1 0", "3 n1 1"]


def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmError, match="sinfo is missing"):
        idle_nodes(None)


def test_what_a_client_says_last_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sinfo"
    said = "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: no configuration source\n"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(SlurmError, match=r"^sinfo: fatal: no configuration source$"):
        idle_nodes(None)


def test_a_real_slurm_tells_its_idle_nodes_and_its_configuration(
    lab: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(lab.spec.conf))

    assert [node.name for node in idle_nodes(None)] == list(lab.spec.node_names())
    assert configuration_folder() == lab.spec.conf.parent
    with pytest.raises(SlurmError, match="no partition lab"):
        idle_nodes("lab")
