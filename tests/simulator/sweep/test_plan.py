"""What a sweep file asks for, and what is wrong with one."""

from pathlib import Path

import pytest

from dally.errors import InputError
from dally.profiles.gang_iteration import Split
from simulator.sweep.plan import SweepTask, alternatives, read_plan

SMALL = 'policies = ["fifo"]\ntrace = "dally-batch"\ncluster = "demo"\n'


def plan(tmp_path: Path, text: str, **chosen: list[str]) -> list[SweepTask]:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return read_plan(path, **chosen).tasks


def test_lists_multiply_by_setting_value_seed_and_policy(tmp_path: Path) -> None:
    tasks = plan(
        tmp_path,
        'policies = ["fifo", "srtf"]\nseeds = [1, 2]\ncluster = "demo"\n'
        '[[settings]]\nname = "a"\ntrace = "dally-batch"\ncongestion = [1.0, 0.1]\n'
        '[[settings]]\nname = "b"\ntrace = "dally-poisson"\nfrom_s = 5\nbatch_split = "proportional"\n',
    )
    assert len(tasks) == 2 * 2 * 2 + 2 * 2
    assert [str(task) for task in tasks[:3]] == ["a fifo seed 1", "a srtf seed 1", "a fifo seed 2"]
    assert [task.inputs.congestion for task in tasks[:8]] == [1.0] * 4 + [0.1] * 4
    assert tasks[-1].inputs.start_s == 5
    assert tasks[-1].inputs.batch_split is Split.PROPORTIONAL


def test_knobs_of_policies_and_of_generated_workloads_have_alternatives(tmp_path: Path) -> None:
    assert alternatives("p:a=1|2,b=x|y") == ["p:a=1,b=x", "p:a=1,b=y", "p:a=2,b=x", "p:a=2,b=y"]
    text = SMALL.replace('"dally-batch"', '"philly-like:cluster_gpus=64,load=0.5|0.9"')
    tasks = plan(tmp_path, text.replace('"fifo"', '"dally:horizon=12|24"'))
    columns = [(task.columns["trace.load"], task.columns["policy.horizon"]) for task in tasks]
    assert columns == [("0.5", "12"), ("0.5", "24"), ("0.9", "12"), ("0.9", "24")]


def test_a_setting_may_have_its_own_policies_and_seeds(tmp_path: Path) -> None:
    text = SMALL + 'seeds = [1, 2]\n[[settings]]\nname = "a"\n'
    tasks = plan(tmp_path, text + '[[settings]]\nname = "b"\npolicies = ["srtf", "sjf"]\nseeds = [7]\n')
    assert [str(task) for task in tasks] == [
        "a fifo seed 1",
        "a fifo seed 2",
        "b srtf seed 7",
        "b sjf seed 7",
    ]
    assert "policies" not in tasks[-1].columns


def test_the_command_line_chooses_policies_and_settings(tmp_path: Path) -> None:
    text = SMALL + '[[settings]]\nname = "a"\n[[settings]]\nname = "b"\n'
    chosen = plan(tmp_path, text, policies=["srtf", "sjf"], settings=["b"])
    assert [str(task) for task in chosen] == ["b srtf seed 0", "b sjf seed 0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policies = [", "not valid TOML"),
        (SMALL.replace("fifo", "fofi"), "unknown policy 'fofi'"),
        (SMALL.replace('["fifo"]', '"fifo"'), "policies is 'fifo', must be a list"),
        (SMALL + "seeds = [1.5]", "seeds is [1.5], must be a list of whole numbers"),
        (SMALL + "sed = 1", "sed is not a known key; valid: policies"),
        (SMALL + "[[settings]]\nout = 'x'", "settings[0].out is not a known key"),
        (SMALL + "[[settings]]\nname='a'\n[[settings]]\nname='a'", "settings[1].name is 'a', like that"),
        (SMALL + 'congestion = ["x"]', "congestion is 'x', must be a number"),
        (SMALL + "contention = 1", "contention is 1, must be true or false"),
        (SMALL + 'batch_split = "odd"', "batch_split is 'odd'"),
        (SMALL + "failures = []", "failures is an empty list"),
        ('policies = ["fifo"]\ntrace = "dally-batch"', "cluster is missing"),
        (SMALL.replace("demo", "nowhere"), "cluster 'nowhere' is neither a file"),
        (SMALL.replace("fifo", "pollux") + "contention = true", "--contention knows no jobs"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(tmp_path, text)
    assert message in str(caught.value)
    assert "study.toml" in str(caught.value)


def test_a_setting_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no setting 'c'; settings: a"):
        plan(tmp_path, SMALL + "[[settings]]\nname='a'", settings=["c"])
