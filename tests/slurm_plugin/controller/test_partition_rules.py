"""Jobs that their partition does not take: they wait, say why, and stop nobody."""

from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.slurm import Hold, Partition, SlurmJob, State
from slurm_plugin.controller import partition_rules
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.controller.partition_rules import groups_of, partition_refusal
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])


def ruled(folder: Path, *rules: Partition, **settings: Any) -> FakeSite:
    site = FakeSite(folder, FOUR, policy="srtf", **settings)
    site.slurm.rules = {each.name: each for each in rules}
    return site


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (
            Partition("gpu", longest_s=600.0),
            "MaxTime of partition gpu is 10 min: it asks for 1 h, so it never starts",
        ),
        (
            Partition("gpu", max_nodes=1),
            "MaxNodes of partition gpu is 1 node: it asks for 2, so it never starts",
        ),
        (Partition("gpu", starts_jobs=False), "partition gpu starts no jobs now"),
        (
            Partition("gpu", accounts=frozenset({"lab"})),
            "partition gpu is not for account none (AllowAccounts)",
        ),
        (
            Partition("gpu", allowed_qos=frozenset({"high"})),
            "partition gpu is not for QOS low (AllowQos)",
        ),
    ],
)
def test_a_job_that_its_partition_does_not_take_waits_and_stops_nobody(
    tmp_path: Path, rules: Partition, why: str
) -> None:
    site = ruled(tmp_path)
    for _ in range(4):
        site.submit("", "USR1", 20, gpus_per_node=4, time_limit_s=9000.0, checkpoint_exit_s=1.0)
    site.live(10)
    site.slurm.rules = {"gpu": rules}
    asked = site.submit(nodes=2, gpus_per_node=4, qos="low", run_time_s=10.0, time_limit_s=3600.0)
    site.live(100)
    assert (site.managed(asked).phase.name, site.managed(asked).reason) == (JobPhase.INELIGIBLE, why)
    assert not site.events("stop", "start_failed")
    site.slurm.rules = {}
    site.live(300)
    assert site.states()[asked] == "COMPLETED"
    assert not site.events("start_failed")


def test_a_job_runs_in_the_one_of_its_partitions_that_takes_it(tmp_path: Path) -> None:
    nodes = {machine.name: ("a", "b") for machine in FOUR.machines}
    site = ruled(tmp_path, Partition("a", longest_s=600.0), ours=("a", "b"), partitions=nodes)
    first, second = (
        site.submit(gpus_per_node=4, partition=names, run_time_s=10.0, time_limit_s=3600.0)
        for names in ("a,b", "a")
    )
    site.live(60)
    assert site.states()[first] == "COMPLETED"
    assert site.managed(second).reason.startswith("MaxTime of partition a is 10 min")


def test_a_job_with_too_few_nodes_in_one_partition_is_told_why_the_other_is_none(tmp_path: Path) -> None:
    nodes: dict[str, tuple[str, ...]] = {machine.name: ("a", "b") for machine in FOUR.machines[:2]}
    nodes |= {machine.name: ("a",) for machine in FOUR.machines[2:]}
    site = ruled(tmp_path, Partition("a", starts_jobs=False), ours=("a", "b"), partitions=nodes)
    asked = site.submit(nodes=3, gpus_per_node=4, partition="a,b", run_time_s=10.0)
    site.live(60)
    why = "too few nodes of its partition have the features, CPUs and memory that it asks for"
    assert site.managed(asked).reason == f"{why}; partition a starts no jobs now"


def test_a_job_of_several_nodes_runs_in_that_of_its_partitions_which_has_them_free(tmp_path: Path) -> None:
    names = {machine.name: (name,) for machine, name in zip(FOUR.machines, "aabb", strict=True)}
    site = ruled(tmp_path, ours=("a", "b"), partitions=names)
    long = [site.submit(gpus_per_node=4, partition="a", run_time_s=9000.0) for _ in range(2)]
    site.live(10)
    asked = site.submit(nodes=2, gpus_per_node=4, partition="a,b", run_time_s=10.0)
    split = site.submit(nodes=3, gpus_per_node=4, partition="a,b", run_time_s=10.0)
    site.live(60)
    assert (site.states()[long[0]], site.states()[asked]) == ("RUNNING", "COMPLETED")
    assert site.managed(split).reason.startswith("too few nodes of its partition")


def test_where_users_do_not_share_nodes_slurm_decides(tmp_path: Path) -> None:
    site = ruled(tmp_path, Partition("gpu", exclusive_by="ExclusiveUser"))
    job = site.submit(gpus_per_node=1, run_time_s=100.0)
    site.live(60)
    assert (
        site.managed(job).reason == "ExclusiveUser of partition gpu fixes the placement; Slurm schedules it"
    )
    assert site.states()[job] == "RUNNING"


def test_jobs_of_a_partition_share_the_cpus_that_it_has_of_a_node(tmp_path: Path) -> None:
    site = ruled(tmp_path, Partition("gpu", cpus_per_node=8), cpus=16)
    jobs = [site.submit(gpus_per_node=1, cpus=6, run_time_s=500.0) for _ in range(5)]
    site.live(20)
    never = site.submit(gpus_per_node=1, cpus=10, run_time_s=50.0)
    site.live(site.now_s + 20)
    assert [site.states()[job] for job in jobs] == ["RUNNING"] * 4 + ["PENDING"]
    assert "MaxCPUsPerNode" in site.managed(never).reason
    site.live(700)
    assert site.states()[jobs[4]] == "RUNNING"
    assert not site.events("start_failed")


def test_a_job_of_fewer_nodes_than_its_partition_gives_is_slurms_own(tmp_path: Path) -> None:
    site = ruled(tmp_path, Partition("gpu", min_nodes=2))
    small, large = (site.submit(nodes=nodes, gpus_per_node=4, run_time_s=10.0) for nodes in (1, 2))
    site.live(60)
    assert site.managed(small).phase.name is JobPhase.RELEASED
    assert "its partition gives 2 or more; Slurm schedules it" in site.managed(small).reason
    (shown,) = (job for job in site.slurm.jobs() if job.job_id == small)
    assert (shown.hold, shown.required_nodes) == (Hold.NONE, ())
    assert site.states()[large] == "COMPLETED"


@pytest.mark.parametrize(
    ("rules", "flag"),
    [
        (Partition("gpu", longest_s=60.0), "PartitionTimeLimit"),
        (Partition("gpu", max_nodes=1), "PartitionMaxNodes"),
    ],
)
def test_flags_of_a_qos_put_it_above_rules(rules: Partition, flag: str) -> None:
    job = SlurmJob("1", 0.0, State.PENDING, partition="gpu", qos="high", time_limit_s=120.0)
    assert partition_refusal(job, 2, rules, AccountingLimits())
    assert partition_refusal(job, 2, rules, AccountingLimits((), {"high": frozenset({flag})})) == ""


def test_accounts_and_qos_may_be_denied() -> None:
    job = SlurmJob("1", 0.0, State.PENDING, partition="gpu", account="lab", qos="high")
    of_site = AccountingLimits(parents={"root": "", "lab": "root"})
    for rules, why in (
        (Partition("gpu", denied_accounts=frozenset({"lab"})), "DenyAccounts"),
        (Partition("gpu", accounts=frozenset({"other"})), "AllowAccounts"),
        (Partition("gpu", denied_qos=frozenset({"high"})), "DenyQos"),
    ):
        assert why in partition_refusal(job, 1, rules, of_site)
    allowed = Partition("gpu", accounts=frozenset({"lab"}), allowed_qos=frozenset({"high"}))
    assert partition_refusal(job, 1, allowed, of_site) == ""


def test_accounts_below_one_that_is_allowed_and_unknown_ones_are_left_to_slurm() -> None:
    allowed = Partition("gpu", accounts=frozenset({"lab"}))
    of_site = AccountingLimits(parents={"root": "", "lab": "root", "vision": "lab", "other": "root"})
    for account, is_refused in (("vision", False), ("other", True), ("root", True), ("elsewhere", False)):
        job = SlurmJob("1", 0.0, State.PENDING, partition="gpu", account=account)
        assert bool(partition_refusal(job, 1, allowed, of_site)) == is_refused, account


@pytest.mark.parametrize(
    ("user", "groups", "refused"),
    [
        ("ann", frozenset({"vision"}), True),
        ("ann", frozenset({"vision", "speech"}), False),
        ("ann", None, False),  # a user whom only other machines know: Slurm decides
        ("root", frozenset({"root"}), False),
    ],
)
def test_a_partition_may_be_for_the_users_of_some_groups_only(
    monkeypatch: pytest.MonkeyPatch, user: str, groups: frozenset[str] | None, refused: bool
) -> None:
    monkeypatch.setattr(partition_rules, "groups_of", lambda _: groups)
    rules = Partition("gpu", groups=frozenset({"speech"}))
    why = partition_refusal(SlurmJob("1", 0.0, State.PENDING, user=user), 1, rules, AccountingLimits())
    assert why == (f"partition gpu is not for the groups of user {user} (AllowGroups)" if refused else "")


def test_groups_are_those_that_the_machine_knows() -> None:
    groups_of.cache_clear()
    known, unknown = groups_of("root"), groups_of("no such user")
    assert known is not None
    assert "root" in known
    assert unknown is None


def test_a_job_of_a_user_outside_the_groups_of_its_partition_waits_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {"ann": frozenset({"vision"}), "bob": frozenset({"speech"})}
    monkeypatch.setattr(partition_rules, "groups_of", groups.get)
    site = ruled(tmp_path, Partition("gpu", groups=frozenset({"speech"})))
    whole: dict[str, Any] = {"gpus_per_node": 4, "checkpoint_exit_s": 1.0}
    running = [site.submit("", "USR1", 20, user="bob", time_limit_s=9000.0, **whole) for _ in range(4)]
    site.live(10)
    assert {site.states()[job] for job in running} == {"RUNNING"}
    short: dict[str, Any] = {"gpus_per_node": 4, "run_time_s": 10.0, "time_limit_s": 20.0}
    outside = site.submit(user="ann", **short)
    site.live(100)
    assert site.managed(outside).phase.name is JobPhase.INELIGIBLE
    assert site.managed(outside).reason == "partition gpu is not for the groups of user ann (AllowGroups)"
    assert {site.states()[job] for job in running} == {"RUNNING"}
    assert not site.events("stop", "start_failed")
    inside = site.submit(user="bob", **short)  # a job like it, for which one does leave
    site.live(200)
    assert (site.states()[inside], site.states()[outside]) == ("COMPLETED", "PENDING")
    assert len(site.events("stop")) == 1
    groups["ann"] = frozenset({"vision", "speech"})
    site.live(300)
    assert site.states()[outside] == "COMPLETED"
    assert not site.events("start_failed")
