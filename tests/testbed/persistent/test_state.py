"""What a persistent cluster writes about itself, and whose folder is taken."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from testbed.persistent.control import bring_up, find_persistent, open_local, take_down
from testbed.persistent.shape import LocalClusterShape
from testbed.persistent.state import (
    STATE_FILE,
    PersistentError,
    PersistentState,
    ProcessMark,
    clear,
    lock,
    mark_process,
    open_folder,
    own_mark,
    read_state,
    write_state,
)

SHAPE = LocalClusterShape((2, 3), gpus=4, rate_bps=1e9, uplink_bps=250e6, gpu_types=("v100", "k80"))
NOBODY = 65534


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    state = PersistentState(SHAPE, 17.5, own_mark(), ProcessMark(7, 8), 9)
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state


def test_where_nothing_is_written_there_is_no_state(tmp_path: Path) -> None:
    assert read_state(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is not what `dally testbed up` writes"),
        ('{"version": 1}', "is not what `dally testbed up` writes"),
        ('{"version": 99}', "is of another version of Dally"),
    ],
)
def test_a_broken_state_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / STATE_FILE).write_text(text)
    with pytest.raises(PersistentError, match=message):
        read_state(tmp_path)


def test_a_later_process_with_the_same_number_is_another() -> None:
    assert own_mark().is_running()
    assert not replace(own_mark(), started=own_mark().started + 1).is_running()


def test_an_ended_process_does_not_live_though_nobody_asked_how_it_ended() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        mark = mark_process(process.pid)
        assert mark
        assert mark.is_running()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not mark.is_running()


def test_a_cluster_whose_network_is_gone_is_not_up(tmp_path: Path) -> None:
    write_state(tmp_path, PersistentState(SHAPE, 1.0, own_mark(), replace(own_mark(), started=0)))
    assert find_persistent(tmp_path) is None
    with pytest.raises(PersistentError, match=r"no testbed is up in .*dally testbed up"):
        open_local(tmp_path)


def test_a_cluster_that_is_up_is_entered_by_its_holder(tmp_path: Path) -> None:
    state = PersistentState(SHAPE, 1.0, own_mark(), own_mark(), 7000)
    write_state(tmp_path, state)
    cluster = open_local(tmp_path)
    assert cluster.network
    assert cluster.network.holder == os.getpid()
    assert cluster.spec == SHAPE.spec(tmp_path, 7000)


def test_another_shape_is_refused_where_one_is_up(tmp_path: Path) -> None:
    write_state(tmp_path, PersistentState(SHAPE, 1.0, own_mark(), own_mark()))
    assert not bring_up(tmp_path, SHAPE)
    with pytest.raises(PersistentError, match=r"5 nodes of 4 GPUs \(v100, k80\) .* 250 Mb/s .* is up in "):
        bring_up(tmp_path, replace(SHAPE, gpus=1))


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(PersistentError, match="is not empty and holds no testbed"):
        bring_up(tmp_path, SHAPE)
    with pytest.raises(PersistentError, match="is not empty and holds no testbed"):
        take_down(tmp_path)
    assert (tmp_path / "mine").exists()


def test_what_is_left_of_a_cluster_is_removed_and_then_there_is_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    write_state(folder, PersistentState(SHAPE, 1.0, replace(own_mark(), started=0)))
    assert take_down(folder)
    assert not folder.exists()
    assert not take_down(folder)


def test_a_broken_state_can_be_taken_down(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_text("{")
    assert take_down(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_users_folder_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(PersistentError, match="belongs to nobody; name another with --folder"):
        bring_up(tmp_path, SHAPE)


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(PersistentError, match="is not a folder that can be used"):
        open_folder(tmp_path / "link")


def test_a_locked_folder_cannot_be_locked_by_another_until_all_handles_are_closed(tmp_path: Path) -> None:
    first, second = open_folder(tmp_path), open_folder(tmp_path)
    assert first
    assert second
    assert lock(tmp_path, first)
    inherited = os.dup(first)
    os.close(first)
    assert not lock(tmp_path, second)
    os.close(inherited)
    assert lock(tmp_path, second)
    os.close(second)


def test_an_empty_folder_holds_nothing_to_clear(tmp_path: Path) -> None:
    assert not clear(tmp_path)
    assert tmp_path.exists()


@pytest.mark.parametrize(("racks", "said"), [((65,), 65), ((40, 40), 80)])
def test_more_hosts_than_a_machine_bears_are_refused(racks: tuple[int, ...], said: int) -> None:
    with pytest.raises(InputError, match=f"the racks have {said} hosts, must be 1 to 64 in all"):
        LocalClusterShape(racks)
