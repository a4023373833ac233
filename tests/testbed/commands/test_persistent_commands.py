"""The commands on a persistent cluster, and the options that lead to it, without bringing one up."""

import json
import os
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dally.commands import main
from testbed.commands.options import LocalClusterOptions, local_cluster_options, opened_cluster
from testbed.persistent.shape import LocalClusterShape
from testbed.persistent.state import PersistentError, PersistentState, own_mark, write_state

SHAPE = LocalClusterShape((1, 3), gpus=4)


@pytest.fixture
def standing(tmp_path: Path) -> Path:
    """A folder in which a cluster seems to be up, kept by this process."""
    write_state(tmp_path, PersistentState(SHAPE, 1.0, own_mark(), own_mark(), 7000))
    return tmp_path


def parsed(*argv: str) -> LocalClusterOptions:
    found: list[LocalClusterOptions] = []

    @click.command()
    @local_cluster_options
    def command(cluster_options: LocalClusterOptions) -> None:
        found.append(cluster_options)

    command.main(list(argv), standalone_mode=False)
    return found[0]


def test_without_options_the_usual_cluster_is_meant() -> None:
    options = parsed()
    assert options.shape() == LocalClusterShape((2, 2, 2, 2), gpus=2, rate_bps=1e9, uplink_bps=200e6)
    assert options.folder == Path(f"/tmp/dally-testbed-{os.geteuid()}")


def test_what_is_said_wins_over_what_is_usual() -> None:
    options = parsed("--racks=1,3", "--gpus=4", "--gpu-types=v100,k80", "--rate=2Gb", "--folder=here")
    assert options.shape() == replace(SHAPE, gpu_types=("v100", "k80"), rate_bps=2e9)
    assert options.folder == Path.cwd() / "here"


def test_the_persistent_cluster_serves_who_asks_for_nothing_or_for_the_same(standing: Path) -> None:
    for cluster_options in (LocalClusterOptions(standing), LocalClusterOptions(standing, {"gpus": 4})):
        with opened_cluster(cluster_options) as cluster:
            assert cluster.conf == standing / "etc" / "slurm.conf"


def test_who_asks_for_another_than_is_up_is_told_what_is(standing: Path) -> None:
    cluster_options = LocalClusterOptions(standing, {"gpus": 5})
    with (
        pytest.raises(PersistentError, match=r"is up with 4 nodes of 4 GPUs .* in 2 racks \(1, 3\)"),
        opened_cluster(cluster_options),
    ):
        pass


@pytest.mark.parametrize("verb", ["status", "down"])
def test_that_nothing_is_up_is_no_error(tmp_path: Path, verb: str) -> None:
    folder = str(tmp_path / "none")
    done = CliRunner().invoke(main, ["testbed", verb, "--folder", folder])
    assert (done.exit_code, done.output) == (0, f"nothing is up in {folder}\n")


def test_status_tells_programs_that_nothing_is_up(tmp_path: Path) -> None:
    folder = str(tmp_path / "none")
    done = CliRunner().invoke(main, ["testbed", "status", "--json", "--folder", folder])
    assert json.loads(done.output) == {"up": False, "folder": folder}


def test_a_folder_of_other_things_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = CliRunner().invoke(main, ["testbed", "up", "--folder", str(tmp_path)])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
