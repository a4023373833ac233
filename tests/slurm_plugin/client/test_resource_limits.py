"""Limits of QOS and associations as sacctmgr shows them, and which jobs they count."""

import pytest

from slurm_plugin.client.resource_limits import enforced_for, read_limits
from slurm_plugin.client.slurm import ResourceLimit, SlurmJob, State

QOS = """normal|||||||
short|cpu=100,gres/gpu=16||gres/gpu=2|3|||gres/gpu=4
wide||8|||gres/gpu=32|5|
typed|gres/gpu:a100=4||||||
"""
ASSOCIATIONS = """root||||||10|
lab|||root|gres/gpu=64|||
vision|||lab|||20|
vision|alice||||4|20|gres/gpu=8
vision|bob|gpu|||1||
"""


def job(user: str = "alice", account: str = "vision", qos: str = "normal") -> SlurmJob:
    return SlurmJob("7", 0.0, State.PENDING, user=user, account=account, qos=qos)


def names(limits: tuple[ResourceLimit, ...], of: SlurmJob) -> set[str]:
    return {limit.name for limit in limits if limit.counts(of)}


def test_limits_on_gpus_and_jobs_are_read() -> None:
    limits = read_limits(QOS, ASSOCIATIONS)
    by_name = {limit.name: limit for limit in limits}
    assert len(by_name) == len(limits) == 11
    assert by_name["GrpTRES of QOS short"].gpus == 16
    assert by_name["MaxTRESPerUser of QOS short"] == ResourceLimit(
        "MaxTRESPerUser of QOS short", "short", each="user", gpus=2
    )
    assert by_name["MaxJobsPerUser of QOS short"].jobs == 3
    assert by_name["MaxTRESPerJob of QOS short"].job_gpus == 4
    assert by_name["MaxTRESPerAccount of QOS wide"].each == "account"
    assert by_name["GrpTRES of account lab"].accounts == {"lab", "vision"}
    assert by_name["MaxJobs of user alice in account vision"].jobs == 20


@pytest.mark.parametrize(
    ("of", "found"),
    [
        (job(), {"GrpTRES of account lab"}),
        (job("bob"), {"GrpTRES of account lab"}),
        (job("carol", "other"), set()),
        (job(qos="short"), {"MaxTRESPerUser of QOS short", "MaxJobsPerUser of QOS short"}),
        (job(qos="wide"), {"GrpTRES of account lab", "GrpJobs of QOS wide"}),
    ],
)
def test_a_limit_counts_the_jobs_of_its_qos_account_or_user(of: SlurmJob, found: set[str]) -> None:
    assert found <= names(read_limits(QOS, ASSOCIATIONS), of)
    if not found:
        assert not names(read_limits(QOS, ASSOCIATIONS), of)


def test_where_a_qos_has_a_limit_an_associations_of_that_kind_is_not_looked_at() -> None:
    limits = read_limits(QOS, ASSOCIATIONS)
    assert "GrpTRES of account lab" not in names(limits, job(qos="short"))
    assert "MaxJobs of user alice in account vision" not in names(limits, job(qos="short"))
    assert "GrpJobs of user alice in account vision" not in names(limits, job(qos="wide"))
    assert "GrpJobs of user alice in account vision" in names(limits, job(qos="short"))


def test_rows_that_make_no_sense_are_passed_over() -> None:
    assert read_limits("sacctmgr: error\nshort|x", "|\n\n") == ()


@pytest.mark.parametrize(
    ("enforce", "cluster"),
    [("associations,limits,qos,safe", "lab"), ("limits", "lab"), ("none", ""), ("associations", "")],
)
def test_limits_count_where_slurm_enforces_them(enforce: str, cluster: str) -> None:
    config = f"AccountingStorageEnforce = {enforce}\nClusterName             = lab\n"
    assert enforced_for(config) == cluster
