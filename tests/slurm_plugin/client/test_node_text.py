"""Partitions, reservations, nodes and licences, as scontrol prints them."""

from math import inf

import pytest

from slurm_plugin.client.node_text import read_licenses, read_nodes, read_partitions, read_reservations
from slurm_plugin.client.slurm import JobDefaults, Partition, Reservation


@pytest.mark.parametrize(
    ("text", "longest_s"),
    [("2-12:00:00", 216_000.0), ("00:30:00", 1800.0), ("UNLIMITED", inf), ("soon", inf)],
)
def test_the_longest_time_limit_of_a_partition(text: str, longest_s: float) -> None:
    said = f"PartitionName=gpu AllowGroups=ALL MaxNodes=UNLIMITED MaxTime={text} MinNodes=0\n"
    assert read_partitions(said) == (Partition("gpu", longest_s),)


def test_what_a_reservation_says_of_its_jobs_is_read() -> None:
    said = (
        "ReservationName={} StartTime=100 EndTime=200 Nodes=n1 Flags={} TRES=cpu={} Users=root Licenses={}\n"
    )
    rows = [
        ("course", "IGNORE_JOBS,SPEC_NODES", "16", "(null)"),
        ("part", "", "2", "(null)"),
        ("flex", "FLEX,SPEC_NODES", "16", "(null)"),
        ("never", "SPEC_NODES,TIME_FLOAT", "16", "(null)"),
        ("licensed", "SPEC_NODES", "16", "matlab:2"),
    ]
    found = read_reservations("".join(said.format(*each) for each in rows))
    assert [(each.name, each.cpus, each.bounds_jobs) for each in found] == [
        ("course", 16, True),
        ("part", 2, True),
        ("flex", 16, False),
        ("never", 16, False),
        ("licensed", 16, False),
    ]


def test_a_reservation_for_maintenance_is_known_by_its_flag() -> None:
    said = "ReservationName={} StartTime=100 EndTime=200 Nodes=n[1-2] Flags={} Users=root\n"
    text = said.format("power", "MAINT,IGNORE_JOBS") + said.format("course", "IGNORE_JOBS")
    assert read_reservations(text) == (
        Reservation("power", ("n1", "n2"), 100.0, 200.0, maintenance=True),
        Reservation("course", ("n1", "n2"), 100.0, 200.0),
    )


def test_the_rules_of_a_partition() -> None:
    said = (
        "PartitionName=big AllowGroups=ALL DenyAccounts=guest,old AllowQos=high Default=NO QoS=pq "
        "MaxNodes=4 MaxTime=00:05:00 MinNodes=2 LLN=NO MaxCPUsPerNode=24 State=DOWN TotalCPUs=64 "
        "JobDefaults=(null)\n"
        "PartitionName=small AllowGroups=staff,vision AllowAccounts=lab AllowQos=ALL QoS=N/A "
        "MaxNodes=UNLIMITED MinNodes=0 State=UP ExclusiveUser=YES\n"
    )
    big = Partition(
        "big",
        300.0,
        min_nodes=2,
        max_nodes=4,
        cpus_per_node=24,
        starts_jobs=False,
        qos="pq",
        denied_accounts=frozenset({"guest", "old"}),
        allowed_qos=frozenset({"high"}),
    )
    small = Partition(
        "small",
        accounts=frozenset({"lab"}),
        groups=frozenset({"staff", "vision"}),
        exclusive_by="ExclusiveUser",
    )
    assert read_partitions(said) == (big, small)


def test_the_defaults_of_a_partition_go_before_those_of_the_cluster() -> None:
    said = (
        "PartitionName=own JobDefaults=DefCpuPerGPU=8,DefMemPerGPU=5000 DefMemPerNode=UNLIMITED\n"
        "PartitionName=plain JobDefaults=(null) DefMemPerNode=UNLIMITED\n"
        "PartitionName=nodes JobDefaults=DefCpuPerGPU=8 DefMemPerNode=900\n"
    )
    settings = {"JobDefaults": "DefMemPerGPU=15000", "DefMemPerCPU": "100"}
    assert [each.defaults for each in read_partitions(said, settings)] == [
        JobDefaults(8, 5000, 100),
        JobDefaults(0, 15_000, 100),
        JobDefaults(8, 15_000, 0, 900),
    ]
    assert read_partitions("PartitionName=plain JobDefaults=(null)")[0].defaults == JobDefaults()


@pytest.mark.parametrize(
    ("used", "count"),
    [
        ("gpu:h100:0(IDX:N/A),shard:h100:0(IDX:N/A)", 0),
        ("gpu:h100:1(IDX:1),shard:h100:1(IDX:0)", 1),
        ("gpu:h100:0(IDX:N/A),shard:h100:3(IDX:0-1,3)", 3),
        ("gpu:0,mps:150(100/100,50/100,0/100)", 2),
        ("gpu:2,shard:5", 1),
        ("gpu:h100:2(IDX:0-1)", 0),
    ],
)
def test_gpus_of_which_jobs_have_parts(used: str, count: int) -> None:
    assert read_nodes(f"NodeName=n1 State=MIXED GresUsed={used}")[0].gpus_shared == count


@pytest.mark.parametrize(("cpus", "threads"), [(16, 1), (32, 2), (8, 1)])
def test_the_threads_of_a_core_count_where_they_are_cpus(cpus: int, threads: int) -> None:
    said = f"NodeName=n1 CoresPerSocket=8 CPUTot={cpus} Sockets=2 ThreadsPerCore=2 State=IDLE"
    assert read_nodes(said)[0].threads_per_core == threads


def test_memory_that_a_node_keeps_for_the_system_is_not_for_jobs() -> None:
    said = "NodeName=n1 State=IDLE RealMemory=64000 CoreSpecCount=2 MemSpecLimit=10000"
    assert read_nodes(said)[0].memory_mb == 54_000


def test_licences_that_are_reserved_are_not_free() -> None:
    said = (
        "LicenseName=a Total=2 Used=0 Free=2 Reserved=1 Remote=no\n"
        "LicenseName=b Total=2 Used=2 Free=0 Reserved=1 Remote=no\n"
    )
    assert read_licenses(said) == {"a": 1, "b": 0}
