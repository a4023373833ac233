import os
from math import inf
from pathlib import Path

import pytest

from profiler.launch.slurm_nodes import (
    PartitionNode,
    SlurmError,
    configuration_folder,
    job_reason,
    parse_nodes,
    read_nodes,
    slurm_version,
)
from slurm_plugin.local_cluster.local_slurm import LocalSlurm

SINFO = """\
n1|10.0.0.1|idle|gpu*
n1|10.0.0.1|idle|other
n2|10.0.0.2|mix|gpu*
n3|10.0.0.3|idle~|gpu*
n4|10.0.0.4|alloc|gpu*
n5|10.0.0.5|idle|other
n6|10.0.0.6|drng|gpu*
n7|10.0.0.7|idle*|gpu*
n8|10.0.0.8|down|gpu*
n9|10.0.0.9|resv|gpu*
"""
SQUEUE = "n2|2026-11-23T10:00:00\nn[2,4]|2026-11-23T12:00:00\n|2026-11-23T12:00:00\n"
RESERVED = """\
ReservationName=lab StartTime=2026-11-23T00:00:00 Nodes=n[9,10] Flags=SPEC_NODES Users=alice State=ACTIVE
ReservationName=later StartTime=2026-11-24T00:00:00 Nodes=n1 Flags=MAINT,SPEC_NODES State=INACTIVE
ReservationName=seats StartTime=2026-11-23T00:00:00 Nodes=(null) Licenses=matlab:2 State=ACTIVE
"""


def free_s(partition: str | None = None, *reservations: str, squeue: str = SQUEUE) -> dict[str, float | None]:
    nodes = parse_nodes(SINFO, squeue, RESERVED, partition, reservations)
    assert len(nodes) == len({node.name for node in nodes})
    return {node.name: node.free_s for node in nodes}


def test_nodes_of_the_partition_are_free_now_or_when_their_last_job_must_have_ended() -> None:
    found = free_s("gpu")

    assert found["n1"] == 0.0
    assert found["n3"] == 1.0  # it must wake first
    assert found["n2"] == found["n4"]
    assert found["n4"] is not None
    assert 1.0 < found["n4"] < inf
    assert "n5" not in found
    assert free_s("other") == {"n1": 0.0, "n5": 0.0}


def test_a_busy_node_whose_jobs_nobody_shows_or_limits_is_free_at_an_unknown_time() -> None:
    assert free_s(squeue="")["n4"] == inf
    assert free_s(squeue="n4|NONE\n")["n4"] == inf


def test_what_is_drained_down_or_silent_is_never_free() -> None:
    assert {name for name, when in free_s().items() if when is None} >= {"n6", "n7", "n8"}


def test_nodes_of_a_reservation_are_free_to_those_alone_who_use_it() -> None:
    assert free_s()["n9"] is None
    assert {name for name, when in free_s(None, "lab").items() if when is not None} == {"n9"}
    assert free_s(None, "lab", "later")["n1"] == 0.0


def test_without_a_partition_the_default_one_counts() -> None:
    assert free_s(None) == free_s("gpu")


def test_an_unknown_partition_or_reservation_is_refused_with_those_there_are() -> None:
    with pytest.raises(SlurmError, match="no partition lab; --partition can be gpu, other"):
        parse_nodes(SINFO, "", "", "lab", ())
    with pytest.raises(SlurmError, match="no default partition; --partition can be other"):
        parse_nodes("n1|10.0.0.1|idle|other\n", "", "", None, ())
    with pytest.raises(SlurmError, match="no reservation mine; SLURM_RESERVATION can be lab, later, seats"):
        parse_nodes(SINFO, SQUEUE, RESERVED, None, ("mine",))


def test_a_missing_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmError, match="sinfo is missing"):
        read_nodes(None, ())


def test_what_a_client_says_last_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sinfo"
    said = "sinfo: error: fetch_config: DNS SRV lookup failed\nsinfo: fatal: no configuration source\n"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(SlurmError, match=r"^sinfo: fatal: no configuration source$"):
        read_nodes(None, ())


def test_a_real_slurm_tells_its_nodes_its_version_and_its_configuration(
    local_slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(local_slurm.spec.conf))
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    job = local_slurm.run(
        "sbatch", "--parsable", "-wn1", "--exclusive", "--time=5", "--wrap", "sleep 300"
    ).strip()
    waiting = local_slurm.run(
        "sbatch", "--parsable", "-wn1", "--exclusive", "--time=5", "--wrap", "true"
    ).strip()
    local_slurm.run("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    local_slurm.run(
        *("scontrol", "create", "reservation", "reservationname=mine", "nodes=n3", "users=root"),
        *("starttime=now", "duration=60"),
    )
    local_slurm.wait_for(
        lambda: local_slurm.run("squeue", "-h", "-o%t", "-j", job).strip() == "R", "the job to run"
    )

    nodes = {node.name: node for node in read_nodes(None, ())}

    assert tuple(nodes) == local_slurm.spec.node_names()
    assert 1.0 < (nodes["n1"].free_s or 0.0) < inf
    assert (nodes["n2"].free_s, nodes["n3"].free_s, nodes["n4"]) == (
        None,
        None,
        PartitionNode("n4", "127.0.0.1", 0.0),
    )
    assert [node.name for node in read_nodes(None, ("mine",)) if node.free_s is not None] == ["n3"]
    local_slurm.wait_for(lambda: job_reason(waiting) in ("Resources", "Priority"), "the reason")
    assert job_reason(job) == ""
    assert slurm_version() == local_slurm.version()
    assert configuration_folder() == local_slurm.spec.conf.parent
    with pytest.raises(SlurmError, match="no partition lab"):
        read_nodes("lab", ())
