from datetime import date
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.testing import racks, simulate
from simulator.priorities import (
    AccountSettings,
    FairTree,
    PrioritySettings,
    UserSettings,
    load_priorities,
    parse_priorities,
)

DAY_S = 86_400.0


def tree(settings: PrioritySettings, **usage: float) -> dict[str, float]:
    """Factors of payers that are named ACCOUNT_USER, by the GPU-seconds that they had."""
    fair = FairTree(settings)
    for name, gpu_s in usage.items():
        account, _, user = name.partition("_")
        fair.know((account, user))
        fair.charge((account, user), gpu_s)
    return {f"{account}_{user}": factor for (account, user), factor in fair.factors().items()}


def test_who_had_nothing_has_the_whole_factor() -> None:
    assert tree(PrioritySettings(), a_u=0, b_v=0) == {"a_u": 1.0, "b_v": 1.0}


def test_accounts_rank_before_users() -> None:
    """By Slurm's page: all users of the better account are before those of the other."""
    factors = tree(PrioritySettings(), a_u=10, a_v=90, b_w=1000, b_x=1)
    assert factors == {"a_u": 1.0, "a_v": 0.75, "b_x": 0.5, "b_w": 0.25}


def test_shares_count_against_usage() -> None:
    accounts = {"a": AccountSettings(shares=1.0), "b": AccountSettings(shares=20.0)}
    factors = tree(PrioritySettings(accounts=accounts), a_u=10, a_v=90, b_w=1000, b_x=1)
    assert factors["b_w"] > factors["a_u"], "1001 over 20 shares is less than 100 over 1"


def test_users_of_equal_accounts_are_ranked_together() -> None:
    factors = tree(PrioritySettings(), a_u=10, a_v=90, b_w=40, b_x=60)
    assert factors == {"a_u": 1.0, "b_w": 0.75, "b_x": 0.5, "a_v": 0.25}


def test_a_file_says_weights_and_shares(tmp_path: Path) -> None:
    path = tmp_path / "priorities.toml"
    path.write_text(
        "weight_age = 500\nhalf_life_s = 86400\n"
        "[accounts.vision]\nshares = 3\nqos_factor = 0.5\nusers = ['ann']\n"
        "[users.bob]\nnice = 100\n"
    )
    assert load_priorities(str(path)) == PrioritySettings(
        weight_age=500,
        half_life_s=DAY_S,
        accounts={"vision": AccountSettings(3.0, 0.5, ("ann",))},
        users={"bob": UserSettings(nice=100)},
    )
    assert load_priorities("on") == PrioritySettings()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"weight_cpu": 1}, "unknown key weight_cpu; valid: weight_age, weight_fair_share"),
        ({"weight_age": -1}, "weight_age is -1, must be a number of 0 or more"),
        ({"half_life_s": 0}, "half_life_s is 0, must be a positive number"),
        ({"period_s": 1e-9}, "period_s is 1e-09, must be 1 or more"),
        ({"accounts": {"a": {"share": 1}}}, "unknown key accounts.a.share; valid: shares, qos_factor"),
        ({"accounts": {"a": {"qos_factor": 2}}}, "accounts.a.qos_factor is 2, must be 0 to 1"),
        ({"accounts": {"a": {"users": "ann"}}}, 'accounts.a.users is "ann", must be a list'),
        ({"users": 3}, "users is 3, must be an object"),
        ({"users": {"bob": 3}}, "users.bob is 3, must be an object"),
        ({"weight_age": date(2026, 1, 1)}, "weight_age is .2026-01-01., must be a number of 0 or more"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(table: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_priorities(table)


def test_slurm_starts_the_job_of_whoever_had_least() -> None:
    """Ann has had the cluster for a day: bob's job goes first, though it came later and is as long."""
    jobs = [
        Job("first", 0, 8, DAY_S, "ann"),
        Job("ann", 1000, 8, DAY_S, "ann"),
        Job("bob", 2000, 8, DAY_S, "bob"),
    ]
    settings = PrioritySettings(weight_age=0)
    plain = simulate("slurm", racks([[4, 4]]), jobs).by_job
    fair = simulate("slurm", racks([[4, 4]]), jobs, priorities=settings).by_job
    assert plain["ann"].start_s == pytest.approx(DAY_S)
    assert fair["bob"].start_s == pytest.approx(DAY_S)


def test_age_makes_up_for_usage_in_time() -> None:
    jobs = [
        Job("first", 0, 8, DAY_S, "ann"),
        Job("ann", 1000, 8, 100.0, "ann"),
        Job("bob", DAY_S - 10, 8, 100.0, "bob"),
    ]
    settings = PrioritySettings(weight_age=20_000, max_age_s=DAY_S)
    order = simulate("slurm", racks([[4, 4]]), jobs, priorities=settings).by_job
    assert order["ann"].start_s == pytest.approx(DAY_S)


def test_nice_and_qos_count() -> None:
    jobs = [Job("first", 0, 8, 100.0, "ann"), *(Job(user, 10, 8, 100.0, user) for user in ("u", "v", "w"))]
    settings = PrioritySettings(
        weight_qos=1000,
        accounts={"good": AccountSettings(qos_factor=1.0, users=("w",))},
        users={"u": UserSettings(nice=50)},
    )
    records = simulate("slurm:bf_interval_s=0", racks([[4, 4]]), jobs, priorities=settings).by_job
    assert sorted("uvw", key=lambda user: records[user].start_s or 0.0) == ["w", "v", "u"]


def test_srsf_delay_keeps_to_the_order_of_classes() -> None:
    """Bob's short job goes before ann's with a ratio of 0, and behind it if his nice is large."""
    jobs = [
        Job("first", 0, 8, 5000.0, "cid", preemptible=False),
        Job("ann", 1000, 8, 5000.0, "ann"),
        Job("bob", 2000, 8, 500.0, "bob"),
    ]
    settings = PrioritySettings(users={"bob": UserSettings(nice=5000)})
    free = simulate("srsf-delay", racks([[4, 4]]), jobs, priorities=settings, priority_ratio=0.0).by_job
    bound = simulate("srsf-delay", racks([[4, 4]]), jobs, priorities=settings, priority_ratio=0.75).by_job
    assert free["bob"].start_s == pytest.approx(5000)
    assert bound["ann"].start_s == pytest.approx(5000)
    assert bound["bob"].start_s == pytest.approx(10_000, rel=0.01)


def test_lower_priority_starts_on_machines_that_are_too_small_for_who_goes_first() -> None:
    vip = {"vip": AccountSettings(qos_factor=1.0)}
    settings = PrioritySettings(weight_fair_share=0.0, weight_qos=1e6, accounts=vip)
    large = [
        Job(name, at_s, 8, 3000.0, group="vip", gpus_per_machine=8, preemptible=False)
        for at_s, name in enumerate(("runs", "waits"))
    ]
    small = Job("small", 60.0, 4, 9500.0, group="rest", preemptible=False)
    result = simulate("srsf-delay", racks([[8, 4]]), [*large, small], priorities=settings)
    assert [result.by_job[name].start_s for name in ("waits", "small")] == [3000.0, 60.0]
