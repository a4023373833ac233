"""The table for job_submit.lua, and how much models suffer across leaf switches."""

import pytest

from dally.cluster import load_cluster
from dally.cluster.toml_file import read_toml
from dally.profiles.files import load_profiles
from slurm_plugin.submit.hints import leaf_slowdowns, site_lua, wait_advice

CLUSTER = """
[[levels]]
name = "machine"
count = {machines}
gpus = 4
fabric = {{ bandwidth_bps = 2e12, latency_s = 1e-6 }}
uplink = {{ bandwidth_bps = {machine_bps}, latency_s = 1e-6 }}
[[levels]]
name = "rack"
count = {racks}
uplink = {{ bandwidth_bps = {rack_bps}, latency_s = 1e-6 }}
"""


def slowdowns(
    machines: int = 2, racks: int = 2, machine_bps: float = 1e11, rack_bps: float = 1e11
) -> dict[str, float]:
    text = CLUSTER.format(machines=machines, racks=racks, machine_bps=machine_bps, rack_bps=rack_bps)
    return leaf_slowdowns(load_profiles("realistic"), read_toml(text, "x", "x"))


def test_every_model_of_the_profiles_has_a_slowdown() -> None:
    profiles = load_profiles("dally")
    found = leaf_slowdowns(profiles, load_cluster("demo"))
    assert tuple(found) == profiles.models
    assert min(found.values()) >= 1


def test_the_slower_the_links_above_the_racks_the_more_models_suffer() -> None:
    fast, slow = slowdowns(rack_bps=1e11), slowdowns(rack_bps=1e9)
    assert all(slow[model] > fast[model] for model in fast)


@pytest.mark.parametrize(("machines", "racks"), [(1, 4), (4, 1)])
def test_without_two_machines_in_one_of_two_racks_there_is_nothing_to_say(machines: int, racks: int) -> None:
    assert slowdowns(machines, racks) == {}


def test_the_administrator_hears_of_waits_that_slurm_would_cut() -> None:
    assert wait_advice({"a": 1.1, "b": 1.5, "c": 3.0}, 300) == (
        "waits of b, c are cut to 300 s; SchedulerParameters=max_switch_wait=3600 in slurm.conf "
        "would allow them all"
    )
    assert wait_advice({"a": 1.1, "b": 1.5}, 900) == ""


def test_a_table_holds_what_the_site_settled() -> None:
    text = site_lua(["b", "a"], [64030], "hint", {"vgg11": 1.25}, 900)
    assert text.splitlines()[1:] == [
        "return {",
        '  mode = "hint",',
        '  partitions = { ["a"] = true, ["b"] = true },',
        "  exempt = { [64030] = true },",
        '  slowdowns = { ["vgg11"] = 1.2500 },',
        "  share = 0.5,",
        "  same = 1.02,",
        "  default_run_s = 3600,",
        "  longest_s = 900,",
        "}",
    ]


def test_no_name_breaks_out_of_its_quotes() -> None:
    assert '["a\\034\\093\\061os\\010\\195\\169"]' in site_lua(['a"]=os\né'], [])
