"""Limits of QOS and associations as sacctmgr shows them, and which jobs they hold for."""

from dataclasses import replace

import pytest

from slurm_plugin.client.accounting_limits import AccountingLimits, ResourceLimit
from slurm_plugin.client.node_text import read_settings
from slurm_plugin.client.resource_limits import enforced_for, is_safe, qos_columns, read_limits, with_spent
from slurm_plugin.client.slurm import Partition, SlurmJob, State
from slurm_plugin.controller.limit_use import LimitUse

QOS = """normal||1.000000|||||||||||||||
short||1.000000||cpu=100,gres/gpu=16||gres/gpu=2|3|||gres/gpu=4|01:00:00||||||
wide|DenyOnLimit,OverPartQOS|0.500000|2.000000||8|||gres/gpu=32|5||1-00:00:00||||||
typed||1.000000||gres/gpu:a100=4,mem=100G||||||cpu=8,node=2|||||||
"""
ASSOCIATIONS = """root||||||10|||||||
lab|||root|gres/gpu=64|||||||||
vision|||lab|||20||02:00:00|||||
vision|alice||||4|20|gres/gpu=8|02:00:00|||||
vision|bob|gpu||||1|||||||
vision|bob|||||9|||||||
"""
PARTITIONS = {"gpu": Partition("gpu"), "other": Partition("other")}


def job(
    user: str = "alice", account: str = "vision", qos: str = "normal", partition: str = "gpu"
) -> SlurmJob:
    return SlurmJob("7", 0.0, State.PENDING, user=user, account=account, qos=qos, partition=partition)


def names(read: AccountingLimits, of: SlurmJob) -> set[str]:
    use = LimitUse(read, {}, PARTITIONS)
    return {limit.name for limit in use._counting(of) if use._holds_for(limit, of)}


def test_limits_are_read_with_what_they_are_on() -> None:
    read = read_limits(QOS, ASSOCIATIONS)
    by_name = {(limit.name, limit.of): limit for limit in read.limits}
    assert len(by_name) == len(read.limits) == 21
    assert by_name["GrpTRES of QOS short", "gres/gpu"].most == 16
    assert by_name["GrpTRES of QOS short", "cpu"].most == 100
    assert by_name["MaxTRESPerUser of QOS short", "gres/gpu"] == ResourceLimit(
        "MaxTRESPerUser of QOS short", 2, qos="short", each="user", qos_with_it=frozenset({"short"})
    )
    assert by_name["MaxJobsPerUser of QOS short", "job"].most == 3
    of_job = by_name["MaxTRESPerJob of QOS short", "gres/gpu"]
    assert (of_job.most, of_job.one_job) == (4, True)
    wall = by_name["MaxWall of QOS wide", "time"]
    assert (wall.most, wall.one_job, wall.qos_with_it) == (86_400.0, True, frozenset({"short", "wide"}))
    assert by_name["MaxTRESPerAccount of QOS wide", "gres/gpu"].each == "account"
    assert by_name["GrpTRES of QOS typed", "gres/gpu:a100"].most == 4
    assert by_name["GrpTRES of QOS typed", "mem"].most == 102_400
    assert by_name["GrpTRES of account lab", "gres/gpu"].accounts == {"lab", "vision"}
    assert by_name["MaxJobs of user alice in account vision", "job"].most == 20
    assert read.qos_flags["wide"] == {"DenyOnLimit", "OverPartQOS"}
    assert read.usage_factors == {"normal": 1.0, "short": 1.0, "wide": 0.5, "typed": 1.0}
    assert read.limit_factors == {"wide": 2.0}


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (job(), {"GrpTRES of account lab", "MaxWall of user alice in account vision"}),
        (job("bob"), {"GrpTRES of account lab"}),
        (job("carol", "other"), set()),
        (
            job(qos="short"),
            {"MaxTRESPerUser of QOS short", "MaxJobsPerUser of QOS short", "MaxWall of QOS short"},
        ),
        (job(qos="wide"), {"GrpTRES of account lab", "GrpJobs of QOS wide"}),
        (job(qos="typed"), {"GrpTRES of account lab", "GrpTRES of QOS typed"}),
    ],
)
def test_a_limit_holds_for_the_jobs_of_its_qos_account_or_user(of: SlurmJob, found: set[str]) -> None:
    assert found <= names(read_limits(QOS, ASSOCIATIONS), of)
    if not found:
        assert not names(read_limits(QOS, ASSOCIATIONS), of)


def test_a_limit_factor_is_on_what_an_association_holds_and_not_on_its_jobs_or_times() -> None:
    use = LimitUse(read_limits(QOS, ASSOCIATIONS), {}, PARTITIONS)
    most = {limit.name: limit.most for limit in use._counting(job(qos="wide"))}
    assert most["GrpTRES of account lab"] == 128
    assert most["MaxTRESPerAccount of QOS wide"] == 32
    assert most["GrpJobs of user alice in account vision"] == 4
    assert {limit.most for limit in use._counting(job()) if limit.name == "GrpTRES of account lab"} == {64}


def test_where_a_qos_has_a_limit_an_associations_of_that_kind_does_not_hold() -> None:
    read = read_limits(QOS, ASSOCIATIONS)
    assert "GrpTRES of account lab" not in names(read, job(qos="short"))
    assert "MaxJobs of user alice in account vision" not in names(read, job(qos="short"))
    assert "MaxWall of user alice in account vision" not in names(read, job(qos="short"))
    assert "GrpJobs of user alice in account vision" not in names(read, job(qos="wide"))
    assert "GrpJobs of user alice in account vision" in names(read, job(qos="short"))


def test_an_association_with_a_partition_takes_the_place_of_the_other_there() -> None:
    read = read_limits(QOS, ASSOCIATIONS)
    here = "MaxJobs of user bob in account vision and partition gpu"
    assert here in names(read, job("bob"))
    assert "MaxJobs of user bob in account vision" not in names(read, job("bob"))
    elsewhere = names(read, job("bob", partition="other"))
    assert "MaxJobs of user bob in account vision" in elsewhere
    assert here not in elsewhere


def test_rows_that_make_no_sense_are_passed_over() -> None:
    assert read_limits("sacctmgr: error\nshort|x", "|\n\n") == AccountingLimits()


@pytest.mark.parametrize(
    ("enforce", "cluster"),
    [("associations,limits,qos,safe", "lab"), ("limits", "lab"), ("none", ""), ("associations", "")],
)
def test_limits_count_where_slurm_enforces_them(enforce: str, cluster: str) -> None:
    config = f"AccountingStorageEnforce = {enforce}\nClusterName             = lab\n"
    assert enforced_for(read_settings(config)) == cluster


SPENT_QOS = "pot||1.000000||||||||||||||gres/gpu=4|01:00:00\n"
SPENT_ASSOCIATIONS = "lab|||root|||||||||gres/gpu=100|\nlab|ann|||||||||||gres/gpu=9|\n"
ASSOC_MGR = """Current Association Manager state
Association Records
ClusterName=c Account=lab UserName= Partition= UsageRaw/Norm=9.00/1.00 GrpWall=N(0.50) GrpTRES=cpu=N(3) \
GrpTRESMins=cpu=N(7),gres/gpu=100(40) GrpTRESRunMins=gres/gpu=N(2)
ClusterName=c Account=lab UserName=ann(1000) Partition= GrpWall=N(0.00) GrpTRESMins=cpu=N(7),gres/gpu=9(8)
QOS Records
QOS=pot(2) UsageRaw=60.99 GrpWall=60(1.17) GrpTRESMins=cpu=N(1),gres/gpu=4(4) Account Limits= lab={A=N(0)}
"""


def test_what_is_spent_is_read_from_slurmctld() -> None:
    read = with_spent(read_limits(SPENT_QOS, SPENT_ASSOCIATIONS), ASSOC_MGR)
    assert {each.name: (each.most, each.spent, each.running) for each in read.limits} == {
        "GrpTRESMins of QOS pot": (4, 4, 0),
        "GrpWall of QOS pot": (60, 1.17, 0),
        "GrpTRESMins of account lab": (100, 40, 2),
        "GrpTRESMins of user ann in account lab": (9, 8, 0),
    }


# As `sacctmgr --noheader --parsable2 show qos` of 26.05.5 printed them. Of jobs of 4 GPUs for 3, 6, 1 and 2
# minutes its squeue showed the first and the third as running, with 16 GPU minutes; the others pended with
# MaxGRESRunMinsPerUser and MaxGRESRunMinsPerAccount. 22.05.8, which showed the same limit, ran the first two.
RUN_MINUTES_OF_26_05 = """normal||1.000000|||||||||||||||||
runuser||1.000000||||||||||||||||gres/gpu=20|
runacct||1.000000|||||||||||||||||gres/gpu=20
"""


def test_minutes_that_each_user_or_account_has_yet_to_run_are_limited_from_24_05_on() -> None:
    read = read_limits(RUN_MINUTES_OF_26_05, "", (26, 5))
    for qos, column in (("runuser", "MaxTRESRunMinsPerUser"), ("runacct", "MaxTRESRunMinsPerAccount")):
        use, starts = LimitUse(read, {}, PARTITIONS), dict[int, str]()
        for minutes in (3, 6, 1, 2):
            asked = replace(job(qos=qos), time_limit_s=60.0 * minutes, tres={"gres/gpu": 4.0})
            starts[minutes] = use.refusal(asked, 4)
            if not starts[minutes]:
                use.hold(asked, 4)
        assert (starts[3], starts[1]) == ("", "")
        why = f"{column} of QOS {qos} is 20 GPU minutes"
        assert starts[6] == f"{why}: it asks for 24, so it never starts"
        assert starts[2] == f"{why}: 16 taken, 8 asked for"
        other = replace(asked, user="bob", account="lab")
        assert use.refusal(other, 4) == ""


@pytest.mark.parametrize(
    ("version", "is_read"), [((22, 5), False), ((23, 11), False), ((24, 5), True), ((26, 5), True)]
)
def test_before_24_05_they_are_not_even_asked_for(version: tuple[int, int], is_read: bool) -> None:
    assert ("MaxTRESRunMinsPerUser" in qos_columns(version).split(",")) == is_read
    assert bool(read_limits(RUN_MINUTES_OF_26_05, "", version).limits) == is_read


def test_safe_limits_are_known() -> None:
    assert is_safe({"AccountingStorageEnforce": "associations,limits,safe"})
    assert not is_safe({"AccountingStorageEnforce": "associations,limits", "StateSaveLocation": "/safe"})
