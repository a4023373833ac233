"""Who uses a name that was given up is told the new one."""

import pytest

from dally.cluster import load_cluster
from dally.errors import InputError
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.files import load_profiles, shipped_sets
from dally.spec import now_called
from dally.traces import load_trace


def test_an_old_policy_is_refused_with_the_new_one() -> None:
    with pytest.raises(InputError, match=r"^unknown policy 'dally-paper'; it is called dally now; valid: "):
        parse_policy("dally-paper:lease_s=600")
    assert "dally" in policy_names()


def test_the_defaults_knobs_under_its_old_name_are_refused_with_its_new_one() -> None:
    with pytest.raises(
        InputError, match="no knob 'patience'; srsf-delay, which was called dally before, has"
    ):
        parse_policy("dally:patience=1")
    with pytest.raises(InputError, match="policy dally has no knob 'color'; valid: timers"):
        parse_policy("dally:color=red")


@pytest.mark.parametrize("gpus", [128, 256, 512, 1024])
def test_an_old_cluster_is_refused_with_the_new_one(gpus: int) -> None:
    with pytest.raises(InputError, match=f"; it is called dally-{gpus} now; shipped: "):
        load_cluster(f"author-{gpus}")
    assert load_cluster(f"dally-{gpus}").gpus == gpus


@pytest.mark.parametrize("kind", ["batch", "poisson"])
def test_an_old_workload_is_refused_with_the_new_one(kind: str) -> None:
    with pytest.raises(InputError, match=f"; it is called dally-{kind} now; generators: "):
        load_trace(f"author-{kind}")
    assert load_trace(f"dally-{kind}").jobs


def test_the_old_profile_set_is_refused_with_the_new_one() -> None:
    with pytest.raises(
        InputError, match="no profile set or path author; it is called dally now; shipped sets: "
    ):
        load_profiles("author")
    assert "dally" in shipped_sets()


@pytest.mark.parametrize("knob", ["estimates=attained", "newcomer_s=600"])
def test_old_knobs_about_running_times_are_refused_with_what_says_it_now(knob: str) -> None:
    with pytest.raises(InputError, match=r"no knob '\w+'; what is known of running times is --knowledge"):
        parse_policy(f"srsf-delay:{knob}")


def test_any_other_name_is_only_unknown() -> None:
    assert now_called("tiresias-paper") == ""
