"""`dally cluster` as a user meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.cluster import load_cluster
from dally.commands import main


def dally_cluster(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["cluster", *arguments])


def test_the_tables_tell_levels_machines_and_links() -> None:
    result = dally_cluster("dally-256")
    assert result.exit_code == 0
    assert "dally-256: 32 machines, 256 GPUs" in result.stdout
    for text in ("102.4 Tb/s, 50 us", "12.8 Tb/s, 2.5 us", "2 slots: in one 4.8 Tb/s, 0 us"):
        assert text in result.stdout


def test_uneven_levels_show_ranges_and_counts(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=a,b Gres=gpu:v100:2\nNodeName=c Gres=gpu:8\n")
    (tmp_path / "topology.conf").write_text("SwitchName=r Nodes=a,b\nSwitchName=top Nodes=c Switches=r\n")
    figures = json.loads(dally_cluster(str(tmp_path), "--json").stdout)
    assert [(level["name"], level["domains"]) for level in figures["levels"]] == [
        ("machine", 3),
        ("rack", 1),
        ("network", 1),
    ]
    assert "2-8" in dally_cluster(str(tmp_path)).stdout


def test_partitions_with_gpus_are_counted(tmp_path: Path) -> None:
    nodes = "NodeName=a,b Gres=gpu:2\nNodeName=c CPUs=1\nNodeSet=own Nodes=b\n"
    partitions = ("DEFAULT Nodes=ALL", "all", "one Nodes=own", "c Nodes=c")
    names = "".join(f"PartitionName={each}\n" for each in partitions)
    (tmp_path / "slurm.conf").write_text(nodes + names)
    assert "partitions: all (2 machines), one (1 machine)\n" in dally_cluster(str(tmp_path)).stdout
    assert json.loads(dally_cluster(str(tmp_path), "--json").stdout)["partitions"] == {
        "all": ["a", "b"],
        "one": ["b"],
    }


def test_links_that_no_file_names_are_said_to_be_defaults(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("NodeName=a,b Gres=gpu:v100:2\n")
    assert "these files name no links" in dally_cluster(str(tmp_path)).stdout
    toml = dally_cluster(str(tmp_path / "slurm.conf"), "--to", "toml")
    assert "these files name no links" in toml.stderr
    copy = tmp_path / "copy.toml"
    copy.write_text(toml.stdout)
    for named in (str(copy), "demo"):
        assert "no links" not in dally_cluster(named).output


def test_json_has_the_figures() -> None:
    figures = json.loads(dally_cluster("demo", "--json").stdout)
    assert (figures["machines"], figures["gpus"]) == (8, 64)
    assert figures["levels"][1] == {
        "name": "rack",
        "domains": 4,
        "gpus_min": 16,
        "gpus_max": 16,
        "uplinks": [{"bandwidth_bps": 5e9, "latency_s": 10e-6, "domains": 4}],
    }
    assert figures["kinds"][0]["gpu_type"] == "v100"


def test_printed_toml_loads_as_the_same_cluster(tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    path.write_text(dally_cluster("dally-128", "--to", "toml").stdout)
    assert load_cluster(path) == load_cluster("dally-128")


def test_the_help_shows_examples_and_shipped_names() -> None:
    text = dally_cluster("--help").stdout
    assert "dally cluster /etc/slurm --to toml > cluster.toml" in text
    assert "dally-1024" in text


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["nope"], 1, "dally: cluster 'nope' is neither"),
        (["demo", "--machines-per-rack", "2"], 1, "dally: demo: machines per rack are for"),
        ([], 2, "Missing argument"),
        (["demo", "--to", "yaml"], 2, "'yaml' is not 'toml'"),
        (["demo", "--to", "toml", "--json"], 2, "--json and --to exclude each other"),
        (["demo", "--machines-per-rack", "0"], 2, "0 is not in the range"),
    ],
)
def test_wrong_use_is_told_without_a_traceback(arguments: list[str], exit_code: int, message: str) -> None:
    result = dally_cluster(*arguments)
    assert result.exit_code == exit_code
    assert message in result.stderr
    assert "Traceback" not in result.output
