"""What is said of a user of a Slurm of others, and when a run there is refused."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.admin.checks.site import Finding, Level
from testbed.remote.rights import Rights, all_findings

ALICE = Rights("alice", 1000, "gpu", {"SlurmUser": "slurm(64030)", "PrivateData": "none"})
WITH_ACCOUNTS = {**ALICE.settings, "AccountingStorageType": "accounting_storage/slurmdbd"}
SITE_LUA = 'partitions = { ["gpu"] = true }'


def judged(**changes: Any) -> dict[str, Finding]:
    """What is said of alice where she differs from an ordinary user by this."""
    return all_findings(replace(ALICE, **changes))


def test_an_ordinary_user_whose_nodes_are_in_no_other_partition_needs_no_more() -> None:
    found = judged()
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert (
        found["rights"].found == "alice is no operator, and need not be: no other partition has these nodes"
    )


@pytest.mark.parametrize(
    ("changes", "check", "said", "advice"),
    [
        (
            {"refusal": "User's group not permitted to use this partition"},
            "jobs",
            "alice may not run jobs in partition gpu: User's group not permitted to use this partition",
            "AllowGroups",
        ),
        (
            {"settings": {"PrivateData": "jobs,nodes", "SlurmUser": "slurm(64030)"}},
            "jobs",
            "Slurm hides nodes from alice (PrivateData)",
            "let you log in as slurm: without slurmdbd there are no operators, only SlurmUser",
        ),
        (
            {"settings": {**WITH_ACCOUNTS, "PrivateData": "nodes,partitions"}},
            "jobs",
            "Slurm hides nodes and partitions from alice (PrivateData)",
            "sacctmgr modify user alice set adminlevel=Operator",
        ),
        ({"marked": frozenset({"bob"})}, "others", "partition gpu has jobs for Dally of bob", "wait until"),
    ],
)
def test_what_keeps_a_run_from_ending_well_is_a_problem(
    changes: dict[str, Any], check: str, said: str, advice: str
) -> None:
    found = judged(**changes)
    assert [name for name, finding in found.items() if finding.level is Level.PROBLEM] == [check]
    assert found[check].found.startswith(said)
    assert advice in found[check].advice


@pytest.mark.parametrize(
    ("settings", "grant"),
    [
        (ALICE.settings, "without slurmdbd there are no operators, only SlurmUser"),
        (WITH_ACCOUNTS, "make alice an operator: sacctmgr modify user alice set adminlevel=Operator"),
    ],
)
def test_nodes_that_others_share_are_a_warning_that_names_what_to_grant(
    settings: dict[str, str], grant: str
) -> None:
    found = judged(settings=settings, shared=frozenset({"long", "debug"}))["rights"]
    assert found.level is Level.WARNING
    assert "jobs of partitions debug, long may take nodes" in found.found
    assert grant in found.advice


@pytest.mark.parametrize(
    "changes",
    [{"uid": 0}, {"uid": 64030}, {"admin_level": "operator"}, {"admin_level": "administrator"}],
)
def test_an_operator_may_do_all(changes: dict[str, Any]) -> None:
    found = judged(shared=frozenset({"other"}), **changes)
    assert {finding.level for finding in found.values()} == {Level.OK}


def test_nodes_that_are_busy_or_down_now_are_no_refusal() -> None:
    found = judged(refusal="Required Node not available (down, drained or reserved)")
    assert found["jobs"].level is Level.WARNING


@pytest.mark.parametrize(
    ("site_lua", "partition", "jobs"),
    [(SITE_LUA, "gpu", Level.PROBLEM), ("", "gpu", Level.PROBLEM), (SITE_LUA, "other", Level.OK)],
)
def test_where_the_site_has_dally_only_slurm_itself_can_run_and_not_in_its_partitions(
    site_lua: str, partition: str, jobs: Level
) -> None:
    found = judged(has_site_dally=True, site_lua=site_lua, partition=partition)
    assert (found["jobs"].level, found["others"].level) == (jobs, Level.PROBLEM)
    assert "takes the hold off jobs for a controller of yours" in found["others"].found
