import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from dally.profiles.files import load_profiles
from dally.profiles.imports.pollux import MODELS
from profiler.commands import main
from profiler.driver.store import MeasurementStore
from tests.profiler.driver.worlds import make_run, messages
from workloads.registry import WORKLOADS


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A folder with the raw file of one run."""
    store = MeasurementStore(tmp_path / "out")
    store.raw.mkdir(parents=True)
    store.begin(make_run())
    for message in messages("resnet18", "vgg11"):
        store.add("rack-2x1", message)
    store.finish("rack-2x1")
    return store.out


def test_help_lists_all_commands_without_loading_them() -> None:
    said = invoke("--help").output
    assert all(name in said for name in ("here", "local", "slurm", "ssh", "fit", "show", "models", "import"))


@pytest.mark.parametrize("name", main.list_commands(click.Context(main)))
def test_every_command_has_help(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_models_lists_the_registry() -> None:
    assert all(name in invoke("models").output for name in WORKLOADS)
    assert [model["name"] for model in json.loads(invoke("models", "--json").output)] == list(WORKLOADS)


def test_an_unknown_model_is_refused_with_the_valid_ones(tmp_path: Path) -> None:
    result = invoke("here", "resnet5", "--out", tmp_path / "out")

    assert result.exit_code == 1
    assert result.output.startswith("profile-models: unknown model resnet5; valid: resnet18, ")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_prints_commands_and_touches_nothing(tmp_path: Path) -> None:
    result = invoke("here", "resnet18", "--backend=gloo", "--ranks=3", "--out", tmp_path / "out", "--dry-run")

    assert [result.output.count(f" WORLD_SIZE={count} ") for count in (1, 2, 3)] == [1, 2, 3]
    assert f">> {tmp_path}/out/raw/machine-1x2.jsonl" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_between_local_hosts_prints_a_line_for_each_rank(tmp_path: Path) -> None:
    result = invoke("local", "resnet18", "--racks=1,1", "--backend=nccl", "--out", tmp_path, "--dry-run")

    lines = [line for line in result.output.splitlines() if "WORLD_SIZE=2" in line]
    assert [line.split()[3] for line in lines] == ["r2h1", "r1h1"]
    assert "NCCL_HOSTID=r2h1 NCCL_NET=Socket NCCL_SOCKET_IFNAME==eth0" in lines[0]
    assert lines[0].endswith(" &")
    assert lines[1].endswith("/raw/network-2x1.jsonl")


def test_more_ranks_than_gpus_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = invoke("here", "--backend=nccl", "--out", tmp_path)

    assert result.exit_code == 1
    assert "this machine has 0; use --backend gloo" in result.output


def test_profiles_are_made_again_from_raw_files(measured: Path) -> None:
    result = invoke("fit", measured)

    assert result.exit_code == 0
    assert load_profiles(measured).models == ("resnet18", "vgg11")
    assert "resnet18 (gloo)" in result.output
    assert (measured / "profiles.png").stat().st_size > 0


def test_a_partial_raw_file_counts_and_the_profile_says_so(measured: Path) -> None:
    MeasurementStore(measured).complete("rack-2x1").rename(MeasurementStore(measured).partial("rack-2x1"))
    path = MeasurementStore(measured).partial("rack-2x1")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    assert "partial" in invoke("fit", measured).output


def test_profiles_are_shown_as_a_table_and_as_json(measured: Path) -> None:
    invoke("fit", measured)

    assert "resnet18 (gloo)" in invoke("show", measured).output
    assert [item["model"] for item in json.loads(invoke("show", measured, "--json").output)] == [
        "resnet18",
        "vgg11",
    ]


def test_a_folder_without_raw_files_is_told(tmp_path: Path) -> None:
    result = invoke("fit", tmp_path)

    assert result.exit_code == 1
    assert result.output == f"profile-models: folder {tmp_path} has no folder raw with raw files (*.jsonl)\n"
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_in_one_folder_are_refused(measured: Path) -> None:
    with MeasurementStore(measured).locked():
        result = invoke("fit", measured)

    assert result.exit_code == 1
    assert "another profile-models is writing to" in result.output


def test_published_tables_become_profiles(tmp_path: Path) -> None:
    for model in MODELS:
        (tmp_path / "traces" / model).mkdir(parents=True)
        rows = "placement,local_bsz,step_time\n1,8,1.0\n11,8,2.0\n22,8,4.0\n24,8,4.0\n"
        (tmp_path / "traces" / model / "placements.csv").write_text(rows)
        for batch in (8, 16):
            table = f"progress,iteration,metric\n10,{80 // batch},0.5\n"
            (tmp_path / "traces" / model / f"validation-{batch}.csv").write_text(table)

    result = invoke("import", "pollux", tmp_path, "--out", tmp_path / "out")

    assert result.exit_code == 0, result.output
    assert len(load_profiles(tmp_path / "out").models) == len(MODELS)


def test_an_unknown_table_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    result = invoke("import", "philly", tmp_path, "--out", tmp_path / "out")

    assert result.exit_code == 2
    assert "'gavel', 'pollux'" in result.output
