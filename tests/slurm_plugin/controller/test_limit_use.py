"""Jobs at a limit of their QOS, account or user: they wait, stop nobody, and start as soon as it allows."""

from math import inf
from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.accounting_limits import AccountingLimits, Counted, ResourceLimit
from slurm_plugin.client.slurm import Partition, SlurmJob, State
from slurm_plugin.controller.limit_use import LimitUse, licenses_asked
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])


def of_low(kind: str, most: float, of: str = "gres/gpu", **whose: Any) -> ResourceLimit:
    """A limit of QOS low, which alone has one of its kind."""
    return ResourceLimit(f"{kind} of QOS low", most, of, qos="low", qos_with_it=frozenset({"low"}), **whose)


PER_USER = of_low("MaxTRESPerUser", 4, each="user")


def limited(folder: Path, *limits: ResourceLimit) -> FakeSite:
    site = FakeSite(folder, FOUR, policy="srtf")
    site.slurm.told_limits = limits
    return site


def asks(gpus: int, minutes: float, start_s: float | None = None, nodes: int = 1) -> SlurmJob:
    state = State.PENDING if start_s is None else State.RUNNING
    tres = {"gres/gpu": float(gpus), "node": float(nodes)}
    return SlurmJob(
        "7", 0.0, state, qos="low", min_nodes=nodes, time_limit_s=60 * minutes, start_s=start_s, tres=tres
    )


@pytest.mark.parametrize(
    ("limit", "job", "why"),
    [
        (of_low("MinTRESPerJob", 2, counted=Counted.LEAST, one_job=True), asks(2, 1), ""),
        (
            of_low("MinTRESPerJob", 2, counted=Counted.LEAST, one_job=True),
            asks(1, 1),
            "MinTRESPerJob of QOS low is 2 GPUs: it asks for 1, so it never starts",
        ),
        (of_low("MaxTRESPerNode", 2, counted=Counted.EACH_NODE, one_job=True), asks(4, 1, nodes=2), ""),
        (
            of_low("MaxTRESPerNode", 2, counted=Counted.EACH_NODE, one_job=True),
            asks(4, 1),
            "MaxTRESPerNode of QOS low is 2 GPUs: it asks for 4, so it never starts",
        ),
        (of_low("MaxTRESMinsPerJob", 8, counted=Counted.MINUTES, one_job=True), asks(4, 2), ""),
        (
            of_low("MaxTRESMinsPerJob", 8, counted=Counted.MINUTES, one_job=True),
            asks(4, 3),
            "MaxTRESMinsPerJob of QOS low is 8 GPU minutes: it asks for 12, so it never starts",
        ),
        (of_low("GrpTRESMins", 8, counted=Counted.SPENT, spent=7.5), asks(4, 3), ""),
        (
            of_low("GrpTRESMins", 8, counted=Counted.SPENT, spent=8),
            asks(4, 3),
            "GrpTRESMins of QOS low is 8 GPU minutes: all of it is spent",
        ),
        (of_low("GrpTRESMins", 8, "gres/gpu:a100", counted=Counted.SPENT, spent=8), asks(4, 3), ""),
        (of_low("MaxTRESPerNode", 2, counted=Counted.EACH_NODE, one_job=True), asks(5, 1, nodes=2), ""),
        (
            of_low("GrpWall", 90, "time", counted=Counted.SPENT, spent=90),
            asks(4, 3),
            "GrpWall of QOS low is 1 h 30 min: all of it is spent",
        ),
    ],
)
def test_limits_on_minutes_nodes_and_least_sizes(limit: ResourceLimit, job: SlurmJob, why: str) -> None:
    use = LimitUse(AccountingLimits((limit,)), {}, {})
    assert use.refusal(job, int(job.tres["gres/gpu"])) == why


def test_minutes_that_running_jobs_have_left_count() -> None:
    limit = of_low("GrpTRESRunMins", 20, counted=Counted.MINUTES)
    use = LimitUse(AccountingLimits((limit,)), {}, {}, now=180.0)
    use.hold(asks(4, 6, start_s=60.0), 4)
    assert use.refusal(asks(4, 1), 4) == ""
    assert use.refusal(asks(4, 2), 4) == (
        "GrpTRESRunMins of QOS low is 20 GPU minutes: 16 taken, 8 asked for"
    )


@pytest.mark.parametrize(
    ("booked_every_s", "taken"),
    [(60.0, 20), (300.0, 24), (inf, 24)],
    ids=["a minute later", "five, so not yet", "priority/basic"],
)
def test_minutes_that_running_jobs_have_had_count_until_slurm_has_booked_them(
    booked_every_s: float, taken: int
) -> None:
    limit = of_low("GrpTRESRunMins", 27, counted=Counted.MINUTES)
    accounting = AccountingLimits((limit,), booked_every_s=booked_every_s)
    use = LimitUse(accounting, {}, {}, now=180.0)
    runs = asks(4, 6, start_s=60.0)
    use.hold(runs, 4)
    assert use.refusal(asks(1, 27 - taken), 1) == ""
    assert use.refusal(asks(4, 2), 4).endswith(f"27 GPU minutes: {taken} taken, 8 asked for")
    use.give_back(runs, 4)
    assert use.refusal(asks(9, 3), 9) == ""


def test_with_safe_limits_a_job_starts_only_if_enough_is_left_for_all_of_it() -> None:
    limit = of_low("GrpTRESMins", 20, counted=Counted.SPENT, spent=10)
    use = LimitUse(AccountingLimits((limit,), safe=True), {}, {}, now=60.0)
    use.run(asks(1, 3, start_s=60.0), 1, is_in_spent=False)
    assert use.refusal(asks(1, 7), 1) == ""
    assert use.refusal(asks(1, 8), 1).endswith("20 GPU minutes: 13 taken, 8 asked for")


@pytest.mark.parametrize(("is_in_spent", "running"), [(True, 12.0), (False, 0.0)])
def test_what_running_jobs_have_used_counts_though_slurm_has_not_booked_it(
    is_in_spent: bool, running: float
) -> None:
    limit = of_low("GrpTRESMins", 20, counted=Counted.SPENT, spent=1, running=running)
    use = LimitUse(AccountingLimits((limit,), safe=True), {}, {}, now=120.0)
    runs = asks(4, 3, start_s=0.0)
    use.run(runs, 4, is_in_spent)
    assert use.refusal(asks(1, 7), 1) == ""
    assert use.refusal(asks(1, 8), 1).endswith("20 GPU minutes: 13 taken, 8 asked for")
    use.give_back(runs, 4)  # what it had is spent, the rest is not
    assert use.refusal(asks(1, 11), 1) == ""
    assert use.refusal(asks(1, 12), 1).endswith("20 GPU minutes: 9 taken, 12 asked for")


MINUTES = {"GrpTRESRunMins": Counted.MINUTES, "GrpTRESMins": Counted.SPENT}


@pytest.mark.parametrize("kind", MINUTES)
@pytest.mark.parametrize(
    ("factor", "flags", "fits", "is_beyond"),
    [
        (2.0, frozenset[str](), 16, 17),
        (2.0, frozenset({"UsageFactorSafe"}), 8, 9),
        (0.5, frozenset[str](), 34, 35),
        (0.5, frozenset({"UsageFactorSafe"}), 68, 69),
        (0.0, frozenset[str](), 40, 41),
    ],
)
def test_a_minute_counts_as_many_as_the_usage_factor_and_before_the_start_as_one_if_not_flagged(
    kind: str, factor: float, flags: frozenset[str], fits: int, is_beyond: int
) -> None:
    limit = of_low(kind, 40, counted=MINUTES[kind])
    accounting = AccountingLimits(
        (limit,), {"low": flags}, safe=True, usage_factors={"low": factor}, booked_every_s=1.0
    )
    use = LimitUse(accounting, {}, {}, now=0.0)
    use.run(asks(2, 6, start_s=0.0), 2, is_in_spent=False)
    assert use.refusal(asks(1, fits), 1) == ""
    assert use.refusal(asks(1, is_beyond), 1).startswith(f"{kind} of QOS low is 40 GPU minutes: ")


def test_a_usage_factor_counts_before_the_start_under_limits_on_one_job_if_flagged() -> None:
    limits = (
        of_low("MaxTRESMinsPerJob", 8, counted=Counted.MINUTES, one_job=True),
        of_low("MaxWall", 600, "time", one_job=True),
    )
    usual = LimitUse(AccountingLimits(limits, usage_factors={"low": 2.0}), {}, {})
    assert usual.refusal(asks(1, 8), 1) == ""
    assert (usual.longest_s(asks(1, 1)), usual.most_gpus(asks(1, 2))) == (480, 4)
    flags = {"low": frozenset({"UsageFactorSafe"})}
    flagged = LimitUse(AccountingLimits(limits, flags, usage_factors={"low": 2.0}), {}, {})
    assert flagged.refusal(asks(1, 4), 1) == ""
    assert flagged.refusal(asks(1, 5), 1).endswith("it asks for 10, so it never starts")
    assert (flagged.longest_s(asks(1, 1)), flagged.most_gpus(asks(1, 2))) == (240, 2)


def test_under_safe_limits_a_job_must_end_within_what_is_left_of_grpwall() -> None:
    limit = of_low("GrpWall", 20, "time", counted=Counted.SPENT, spent=5)
    assert LimitUse(AccountingLimits((limit,)), {}, {}).refusal(asks(1, 60), 1) == ""
    use = LimitUse(AccountingLimits((limit,), safe=True), {}, {})
    use.run(asks(1, 10, start_s=0.0), 1, is_in_spent=True)  # Slurm does not count that it still runs
    assert use.refusal(asks(1, 15), 1) == ""
    assert use.refusal(asks(1, 16), 1) == "GrpWall of QOS low is 20 min: 5 min taken, 16 min asked for"


def test_under_safe_limits_no_job_starts_beyond_one_while_others_use_it(tmp_path: Path) -> None:
    site = limited(tmp_path, of_low("GrpTRESMins", 100, counted=Counted.SPENT))
    site.slurm.safe, site.slurm.most_minutes, site.slurm.spent_min = True, {"low": 100}, {"low": 0.0}
    asked: dict[str, Any] = {"gpus_per_node": 4, "qos": "low", "time_limit_s": 600.0}
    early = site.submit(run_time_s=280.0, **asked)
    late = site.submit(run_time_s=590.0, **asked)
    other: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 9000.0, "checkpoint_exit_s": 1.0}
    others = [site.submit("", "USR1", 20, user="bob", **other) for _ in range(2)]
    site.live(10)
    third = site.submit(run_time_s=100.0, **asked)
    site.live(270)
    assert site.managed(third).reason == ("GrpTRESMins of QOS low is 100 GPU minutes: 80 taken, 40 asked for")
    site.live(290)  # what the first did not use is soon known to be there
    assert [site.states()[job] for job in (early, late, third)] == ["COMPLETED", "RUNNING", "RUNNING"]
    site.live(400)
    assert site.states()[third] == "COMPLETED"
    assert {site.states()[job] for job in others} == {"RUNNING"}
    assert not site.events("stop", "start_failed")


def test_a_limit_on_the_minutes_of_a_job_bounds_the_time_that_it_may_be_given() -> None:
    limit = of_low("MaxTRESMinsPerJob", 8, counted=Counted.MINUTES, one_job=True)
    assert LimitUse(AccountingLimits((limit,)), {}, {}).longest_s(asks(4, 1)) == 120


def test_a_user_at_his_limit_waits_and_stops_nobody(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    asked: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 3600.0, "checkpoint_exit_s": 1.0}
    others = [site.submit("", "USR1", 20, user="bob", **asked) for _ in range(3)]
    first = site.submit(gpus_per_node=4, qos="low", run_time_s=100.0, time_limit_s=200.0)
    site.live(10)
    assert set(site.states().values()) == {"RUNNING"}
    second = site.submit(gpus_per_node=4, qos="low", run_time_s=10.0, time_limit_s=20.0)
    site.live(90)
    assert site.managed(second).phase.name is JobPhase.INELIGIBLE
    assert site.managed(second).reason == "MaxTRESPerUser of QOS low is 4 GPUs: 4 taken, 4 asked for"
    assert not site.events("stop", "start_failed")
    site.live(115)
    assert site.states()[second] in ("RUNNING", "COMPLETED")
    assert {site.states()[job] for job in others} == {"RUNNING"}
    assert site.states()[first] == "COMPLETED"


def test_a_job_that_is_coming_to_its_end_still_counts(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.slurm.completing_s = 30.0
    asked: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 3600.0, "checkpoint_exit_s": 1.0}
    for _ in range(3):
        site.submit("", "USR1", 20, user="bob", **asked)
    site.submit(gpus_per_node=4, qos="low", run_time_s=50.0, time_limit_s=200.0)
    site.live(10)
    second = site.submit(gpus_per_node=1, qos="low", run_time_s=10.0, time_limit_s=20.0)
    site.live(70)
    assert site.managed(second).reason == "MaxTRESPerUser of QOS low is 4 GPUs: 4 taken, 1 asked for"
    site.live(85)
    assert site.states()[second] == "RUNNING"
    assert not site.events("stop", "start_failed")


def test_no_more_jobs_are_promised_gpus_than_a_limit_allows(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.slurm.most_gpus["low"] = 4
    for _ in range(5):
        site.submit(gpus_per_node=2, qos="low", run_time_s=50.0, time_limit_s=60.0)
    site.live(400)
    assert set(site.states().values()) == {"COMPLETED"}
    assert not site.events("start_failed")


def test_a_limit_on_jobs_and_one_on_each_job(tmp_path: Path) -> None:
    jobs = ResourceLimit("GrpJobs of account lab", 1, "job", accounts=frozenset({"lab"}))
    size = of_low("MaxTRESPerJob", 2, one_job=True)
    site = limited(tmp_path, jobs, size)
    one, two = (site.submit(gpus_per_node=1, account="lab", run_time_s=50.0) for _ in range(2))
    large = site.submit(gpus_per_node=4, qos="low")
    site.live(20)
    assert (site.states()[one], site.states()[two]) == ("RUNNING", "PENDING")
    assert site.managed(two).reason == "GrpJobs of account lab is 1 job: so many run or are about to"
    assert (
        site.managed(large).reason == "MaxTRESPerJob of QOS low is 2 GPUs: it asks for 4, so it never starts"
    )
    site.live(70)
    assert site.states()[two] == "RUNNING"


def test_limits_are_read_again_and_the_last_ones_hold_while_nobody_answers(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.live(5)
    site.slurm.told_limits = ()
    assert site.controller.reconciler.conditions.limits.limits == (PER_USER,)
    site.submit(gpus_per_node=1, run_time_s=1000.0)
    site.live(400)
    assert not site.controller.reconciler.conditions.limits.limits


def test_limits_that_cannot_be_read_are_told_once(tmp_path: Path) -> None:
    site = limited(tmp_path, PER_USER)
    site.slurm.told_limits = None
    site.submit(gpus_per_node=1, run_time_s=2000.0)
    site.live(1000)
    assert site.events("limits_unread") == [("limits_unread", "")]


def test_no_more_jobs_are_promised_licences_than_are_free(tmp_path: Path) -> None:
    site = limited(tmp_path)
    site.slurm.total_licenses["matlab"] = 2
    jobs = [site.submit(gpus_per_node=1, licenses="matlab", run_time_s=50.0) for _ in range(5)]
    site.live(20)
    assert [site.states()[job] for job in jobs] == ["RUNNING"] * 2 + ["PENDING"] * 3
    assert site.managed(jobs[2]).reason == "it asks for 1 of licence matlab, and 0 are free"
    site.live(400)
    assert {site.states()[job] for job in jobs} == {"COMPLETED"}
    assert not site.events("start_failed")


def test_a_licence_that_a_job_of_slurms_own_is_about_to_take_is_not_promised(tmp_path: Path) -> None:
    site = limited(tmp_path)
    site.slurm.start_delay_s = 30.0
    site.slurm.total_licenses["matlab"] = 1
    site.slurm.submit(SubmitSpec(licenses="matlab", held=False, run_time_s=100.0))
    job = site.submit(gpus_per_node=1, licenses="matlab", run_time_s=10.0)
    site.live(20)
    assert site.managed(job).reason == "it asks for 1 of licence matlab, and 0 are free"
    site.slurm.start_delay_s = 0.0
    site.live(200)
    assert site.states()[job] == "COMPLETED"
    assert not site.events("start_failed")


ASKING = pytest.mark.parametrize("asks_for", [{"licenses": "matlab"}, {"qos": "low"}], ids=["licence", "qos"])
"""Jobs of which one may run at a time."""


def one_at_a_time(folder: Path) -> FakeSite:
    jobs = of_low("GrpJobs", 1, "job")
    site = limited(folder, jobs)
    site.slurm.total_licenses["matlab"] = 1
    return site


@ASKING
def test_a_job_that_waits_for_gpus_leaves_limits_and_licences_to_younger_ones(
    tmp_path: Path, asks_for: dict[str, Any]
) -> None:
    site = one_at_a_time(tmp_path)
    site.submit(gpus_per_node=4, user="bob", run_time_s=300.0, time_limit_s=400.0)
    site.live(10)
    whole: dict[str, Any] = {"nodes": 4, "gpus_per_node": 4, "run_time_s": 100.0, "time_limit_s": 900.0}
    large, like_it = (site.submit(**whole, **asks_for) for _ in range(2))
    site.live(20)
    assert site.managed(large).phase.name is JobPhase.PENDING
    why = "a job like it goes first, and a limit or licence is not enough for both"
    assert site.managed(like_it).reason == why
    small = site.submit(gpus_per_node=1, run_time_s=50.0, time_limit_s=60.0, **asks_for)
    site.live(40)
    assert site.states()[small] == "RUNNING"
    for waits in (large, like_it):
        assert site.managed(waits).reason in (
            "it asks for 1 of licence matlab, and 0 are free",
            "GrpJobs of QOS low is 1 job: so many run or are about to",
        )
    site.live(550)
    assert {site.states()[job] for job in (large, like_it)} == {"COMPLETED"}
    assert not site.events("start_failed")


@ASKING
def test_of_starts_decided_at_once_only_as_many_come_as_limits_and_licences_allow(
    tmp_path: Path, asks_for: dict[str, Any]
) -> None:
    site = one_at_a_time(tmp_path)
    asked: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 9000.0, "checkpoint_exit_s": 1.0}
    others = [site.submit("", "USR1", 20, user="bob", **asked) for _ in range(4)]
    site.live(10)
    jobs = [
        site.submit(gpus_per_node=gpus, run_time_s=50.0, time_limit_s=60.0, **asks_for) for gpus in (4, 3, 2)
    ]
    site.live(40)
    assert len(site.events("stop")) == 1
    assert sorted(site.states()[job] for job in jobs) == ["PENDING", "PENDING", "RUNNING"]
    site.live(300)
    assert {site.states()[job] for job in jobs} == {"COMPLETED"}
    assert {site.states()[job] for job in others} == {"RUNNING"}
    assert not site.events("start_failed")


@ASKING
def test_what_a_job_needs_for_which_others_leave_is_given_to_nobody_else(
    tmp_path: Path, asks_for: dict[str, Any]
) -> None:
    site = one_at_a_time(tmp_path)
    asked: dict[str, Any] = {"time_limit_s": 9000.0, "checkpoint_exit_s": 15.0}
    for gpus in (4, 4, 4, 2):
        site.submit("", "USR1", 20, user="bob", gpus_per_node=gpus, **asked)
    site.live(10)
    first = site.submit(gpus_per_node=4, run_time_s=50.0, time_limit_s=60.0, **asks_for)
    site.live(15)
    assert len(site.events("stop")) == 1
    second = site.submit(gpus_per_node=1, run_time_s=5.0, time_limit_s=10.0, **asks_for)
    site.live(40)
    assert (site.states()[first], site.states()[second]) == ("RUNNING", "PENDING")
    site.live(100)
    assert site.states()[second] == "COMPLETED"
    assert not site.events("start_failed")


@pytest.mark.parametrize(
    ("limit", "first", "second", "why"),
    [
        (
            of_low("GrpTRES", 4, "gres/gpu:a"),
            {"gpu_type": "a", "gpus_per_node": 4},
            {"gpu_type": "a", "gpus_per_node": 1},
            "GrpTRES of QOS low is 4 a GPUs: 4 taken, 1 asked for",
        ),
        (
            of_low("GrpTRES", 8, "cpu"),
            {"gpus_per_node": 1, "cpus": 6},
            {"gpus_per_node": 1, "cpus": 4},
            "GrpTRES of QOS low is 8 CPUs: 6 taken, 4 asked for",
        ),
        (
            of_low("GrpTRES", 2, "node"),
            {"gpus_per_node": 1, "nodes": 2},
            {"gpus_per_node": 1},
            "GrpTRES of QOS low is 2 nodes: 2 taken, 1 asked for",
        ),
    ],
    ids=["type", "cpus", "nodes"],
)
def test_other_resources_are_counted_as_gpus_are(
    tmp_path: Path, limit: ResourceLimit, first: dict[str, Any], second: dict[str, Any], why: str
) -> None:
    site = limited(tmp_path, limit)
    one = site.submit(qos="low", run_time_s=50.0, **first)
    two = site.submit(qos="low", run_time_s=10.0, **second)
    site.live(20)
    assert (site.states()[one], site.states()[two]) == ("RUNNING", "PENDING")
    assert site.managed(two).reason == why
    site.live(100)
    assert site.states()[two] == "COMPLETED"
    assert not site.events("start_failed")


def test_a_limit_on_a_type_counts_what_jobs_hold_of_it_and_what_they_ask_for() -> None:
    use = LimitUse(AccountingLimits((of_low("GrpTRES", 4, "gres/gpu:a100"),)), {}, {})
    use.hold(job("low", tres={"gres/gpu": 3, "gres/gpu:a100": 3}), 3)
    assert use.refusal(job("low", tres={"gres/gpu": 2}), 2) == ""  # Slurm itself lets any type pass
    typed = job("low", tres={"gres/gpu": 2, "gres/gpu:a100": 2})
    assert use.refusal(typed, 2) == "GrpTRES of QOS low is 4 a100 GPUs: 3 taken, 2 asked for"


def test_a_job_longer_than_its_qos_allows_never_starts_says_so_and_stops_nobody(tmp_path: Path) -> None:
    site = limited(tmp_path, of_low("MaxWall", 600, "time", one_job=True))
    asked: dict[str, Any] = {"gpus_per_node": 4, "time_limit_s": 9000.0, "checkpoint_exit_s": 1.0}
    for _ in range(4):
        site.submit("", "USR1", 20, user="bob", **asked)
    site.live(10)
    long = site.submit(gpus_per_node=4, qos="low", run_time_s=10.0, time_limit_s=1200.0)
    site.live(100)
    assert site.managed(long).phase.name is JobPhase.INELIGIBLE
    assert site.managed(long).reason == "MaxWall of QOS low is 10 min: it asks for 20 min, so it never starts"
    assert not site.events("stop", "start_failed")
    site.slurm.update(long, time_limit_s=300.0)
    site.live(200)
    assert site.states()[long] == "COMPLETED"


def job(qos: str = "", partition: str = "gpu", user: str = "alice", **more: Any) -> SlurmJob:
    return SlurmJob("1", 0.0, State.PENDING, user=user, qos=qos, partition=partition, **more)


def test_a_partitions_qos_goes_before_the_jobs_own_unless_that_is_flagged() -> None:
    both = frozenset({"big", "part"})
    big, part = (
        ResourceLimit(f"GrpTRES of QOS {qos}", most, qos=qos, qos_with_it=both)
        for qos, most in (("big", 8), ("part", 2))
    )
    partitions = {"gpu": Partition("gpu", qos="part"), "free": Partition("free")}
    plain = LimitUse(AccountingLimits((big, part)), {}, partitions)
    assert plain.refusal(job("big"), 4) == "GrpTRES of QOS part is 2 GPUs: it asks for 4, so it never starts"
    assert plain.refusal(job("big", "free"), 4) == ""
    flagged = LimitUse(AccountingLimits((big, part), {"big": frozenset({"OverPartQOS"})}), {}, partitions)
    assert flagged.refusal(job("big"), 4) == ""
    flagged.hold(job("big"), 8)
    assert flagged.refusal(job(), 1) == "GrpTRES of QOS part is 2 GPUs: 8 taken, 1 asked for"
    assert flagged.refusal(job("big", "free"), 1) == "GrpTRES of QOS big is 8 GPUs: 8 taken, 1 asked for"


def test_limits_on_one_kind_of_resource_leave_those_on_another_alone() -> None:
    account = ResourceLimit(
        "GrpTRES of account lab", 4, accounts=frozenset({"lab"}), qos_with_it=frozenset({"big"})
    )
    use = LimitUse(AccountingLimits((account,)), {}, {})
    assert use.refusal(job(account="lab"), 8)
    assert use.refusal(job("big", account="lab"), 8) == ""
    use.hold(job("big", account="lab"), 3)
    assert use.refusal(job(account="lab"), 2) == "GrpTRES of account lab is 4 GPUs: 3 taken, 2 asked for"


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("matlab", [("matlab", 1)]),
        ("matlab:2,ansys=3", [("matlab", 2), ("ansys", 3)]),
        ("matlab@server:2", [("matlab", 2)]),
        ("matlab|ansys", []),
        ("", []),
    ],
)
def test_licences_are_read_as_a_job_asks_for_them(text: str, asked: list[tuple[str, int]]) -> None:
    assert licenses_asked(text) == asked
