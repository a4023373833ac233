"""Fixtures for all tests: a browser, and a real Slurm for those that ask for one, which so become marked."""

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from playwright.sync_api import Browser, expect, sync_playwright

from dally.errors import DallyError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.patience import LONGEST_S
from tests.slurm_table import STARTS_SLURM, slurm_table

TESTS = Path(__file__).parent
USERS = ("dally-alice", "dally-bob")

SLOW = {
    "analysis/advise/test_command.py",
    "analysis/advise/test_in_browser.py",
    "analysis/notebooks/test_notebooks.py",
    "analysis/report/test_in_browser.py",
    "analysis/studies/test_drl_training.py",
    "analysis/studies/test_elastic.py",
    "analysis/studies/test_forked_training.py",
    "analysis/studies/test_fragments.py",
    "analysis/studies/test_parallel_plans.py",
    "analysis/studies/test_predictor_validation.py",
    "dally/policies/dally/test_oracle.py",
    "dally/scheduling/recording/test_replay.py",
    "dally/traces/test_acme.py",
    "dally/traces/test_csv_roundtrip.py",
    "dally/traces/test_generators.py",
    "docs/test_extending.py",
    "docs/test_preemptible_scripts.py",
    "docs/test_site.py",
    "fuzz/test_extremes.py",
    "fuzz/test_formats.py",
    "fuzz/test_linear_readers.py",
    "simulator/sweep/test_command.py",
    "simulator/test_dally_workloads.py",
    "simulator/test_knowledge.py",
    "simulator/test_properties.py",
    "simulator/test_real_traces.py",
    "simulator/test_rebuilt.py",
    "simulator/test_scale.py",
    "simulator/test_stall_detector.py",
    "slurm_plugin/controller/test_crashes.py",
    "slurm_plugin/controller/test_cycle_cost.py",
    "slurm_plugin/controller/test_failed_starts.py",
    "slurm_plugin/controller/test_node_room.py",
    "slurm_plugin/controller/test_oldest_first.py",
    "slurm_plugin/controller/test_recording.py",
    "slurm_plugin/controller/test_same_decisions.py",
    "slurm_plugin/controller/test_time_limits.py",
    "slurm_plugin/controller/test_walks.py",
    "slurm_plugin/service/test_server.py",
    "slurm_plugin/service/test_status_command.py",
    "slurm_plugin/test_asking.py",
    "slurm_plugin/test_soak.py",
}
"""Files that take long; they and the folders below are left out of `scripts/test.sh quick`.

So are single tests of other files that take over 2 s: they carry the mark themselves.
"""

SLOW_FOLDERS = ("dally/hosts", "profiler", "slurm_plugin/local_cluster", "testbed", "workloads")
"""Folders whose tests start processes, shape networks or train: importing torch alone takes 3 s."""

ONE_WORKER = {
    "analysis/advise/test_command.py",
    "analysis/advise/test_in_browser.py",
    "analysis/report/test_in_browser.py",
    "analysis/studies/test_predictor_validation.py",
    "dally/hosts/test_network.py",
    "dally/hosts/test_ssh.py",
    "dally/traces/test_acme.py",
    "docs/test_site.py",
    "profiler/rank/test_session.py",
    "profiler/rank/test_steps.py",
    "slurm_plugin/admin/test_dashboard.py",
    "slurm_plugin/client/test_contract.py",
    "slurm_plugin/submit/test_job_submit.py",
    "testbed/running/test_real_types.py",
    "workloads/elastic/test_run.py",
    "workloads/forked/test_run.py",
    "workloads/test_preload_client.py",
    "workloads/test_train.py",
}
"""Files whose tests share a fixture that is dear to set up."""

REMOTE = "testbed/remote"
"""A folder whose tests go to one worker, too: its sshds, users and hosts are the machine's."""

settings.register_profile("dally", deadline=None, derandomize="CI" in os.environ)
"""How long an example takes depends on what else the machine does.

Continuous integration judges a change by the same examples each time; all other runs look for new ones.
"""
settings.load_profile("dally")

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Some containers set it; here hundreds of processes would each compile anew what they import."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell that runs tests in the background has it ignored, and what they interrupt would inherit that."""

gc.disable()
"""Until all tests are collected: what importing makes, stays. See `pytest_collection_finish`."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `-m "not slow"`, read no file of which nothing runs: some import torch, in every worker."""
    if config.option.markexpr != "not slow" or not collection_path.is_relative_to(TESTS):
        return None
    return _is_slow(collection_path.relative_to(TESTS)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests, and those on a real Slurm: `-m slurm` finds them all and `-m 'not slurm'` none.

    The slow ones come first, so that no worker is left alone with one at the end. Tests of a file that share
    a fixture go to one worker; all others to whichever is free: each has its own cluster, ports and folders.
    Those on a real Slurm wait most of the time: they are mixed evenly with those that compute.
    """
    for item in items:
        slurm = "cluster_folder" in getattr(item, "fixturenames", ())
        if slurm:
            item.add_marker(pytest.mark.slurm)
        if item.get_closest_marker("slurm"):
            item.user_properties.append((STARTS_SLURM, True))
        folder = item.path.relative_to(TESTS)
        if item.get_closest_marker("slurm") or _is_slow(folder):
            item.add_marker(pytest.mark.slow)
        if str(folder) in ONE_WORKER:
            item.add_marker(pytest.mark.xdist_group(str(folder)))
        elif folder.is_relative_to(REMOTE):
            item.add_marker(pytest.mark.xdist_group(REMOTE))
    slow = [item for item in items if item.get_closest_marker("slow")]
    quick = [item for item in items if not item.get_closest_marker("slow")]
    items[:] = (_mixed(slow) if "PYTEST_XDIST_WORKER" in os.environ else slow) + quick


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """Tests with those on a real Slurm spread evenly among the others."""
    place: dict[pytest.Item, float] = {}
    for waits in (False, True):
        alike = [item for item in items if (item.get_closest_marker("slurm") is not None) is waits]
        place |= {item: number / len(alike) for number, item in enumerate(alike)}
    return sorted(items, key=place.__getitem__)


def pytest_collection_finish() -> None:
    """Leave the modules and tests, half a million objects that stay, out of what the collector looks through.

    It did so again and again: a third of the time of tests that simulate.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note failures by the tests' own names: with groups in them, `--last-failed` finds none and runs all."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        failed = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {_without_group(name): True for name in failed})


def _without_group(name: str) -> str:
    """A test's name without the group of it that pytest-xdist adds."""
    test, _, group = name.rpartition("@")
    return test if group in {*ONE_WORKER, REMOTE} else name


def _is_slow(path: Path) -> bool:
    return str(path) in SLOW or any(path.is_relative_to(each) for each in SLOW_FOLDERS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what ran on which Slurm."""
    for line in slurm_table(terminalreporter.stats):
        terminalreporter.write_line(line)


@pytest.fixture
def cluster_folder() -> Path:
    """A short path, open to all users, for a local cluster; the cluster removes it."""
    return Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))


@pytest.fixture(scope="session")
def users() -> tuple[str, ...]:
    """Two ordinary users of this machine, made if they are missing."""
    for name in USERS:
        make_user(name)
    return USERS


@pytest.fixture
def local_slurm(cluster_folder: Path, users: tuple[str, ...]) -> Iterator[LocalSlurm]:
    """A fresh cluster of 8 nodes with 8 GPUs each in 4 racks, that ends with the test."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder))
    try:
        local_slurm.start()
    except DallyError as error:
        pytest.fail(str(error), pytrace=False)
    yield local_slurm
    local_slurm.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.fail(
            "there is no Chromium; as root: apt-get install chromium fonts-dejavu-core", pytrace=False
        )
    expect.set_options(timeout=1000 * LONGEST_S)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
