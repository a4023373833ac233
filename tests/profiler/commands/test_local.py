import signal
import subprocess
from pathlib import Path

import pytest

from dally.profiles.files import load_profiles
from tests.patience import LONGEST_S, wait_until
from tests.profiler.commands.real import PROGRAM, SMALL, end, marked, run, start


def test_two_ranks_are_measured_over_a_shaped_link(tmp_path: Path) -> None:
    done = run("local", *SMALL, "--racks=1,1", "--uplink=500Mb", "--out", tmp_path / "out")

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(tmp_path / "out").profiles
    (point,) = profile.tiers["network"]
    assert point.link is not None
    assert point.link.bandwidth_bps == 500e6
    largest = point.allreduce_curve[-1]
    assert largest.median_s > 0.8 * largest.bytes * 8 / 500e6, "faster than the link"


def test_killed_it_leaves_neither_ranks_nor_network(tmp_path: Path) -> None:
    process = start(tmp_path, "local", *SMALL, "--racks=2", "--shapes=2x1", "--out", tmp_path / "out")
    wait_until(lambda: bool(marked(tmp_path, "profiler.rank")), "a rank")
    assert marked(tmp_path, "network_holder")

    end(process, signal.SIGKILL)

    wait_until(lambda: not marked(tmp_path), "all ranks and the network to be gone")


def test_a_user_without_rights_measures_too_where_user_namespaces_are_allowed(tmp_path: Path) -> None:
    as_nobody = ("unshare", "--user", "--map-user=1000", "--map-group=1000")  # files stay within reach
    may = subprocess.run([*as_nobody, "unshare", "--user", "--net", "true"], timeout=LONGEST_S)
    if may.returncode:
        pytest.skip("this kernel lets nobody but root make namespaces")

    done = subprocess.run(
        [*as_nobody, PROGRAM, "local", *SMALL, "--racks=2", "--shapes=1x1", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
    )

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(tmp_path / "out").profiles
    assert set(profile.tiers) == {"machine"}
