from pathlib import Path

import pytest

from dally.hosts.hosts_file import HostsFile, read_hosts_file
from dally.hosts.ssh import SshHosts
from profiler.driver.plan import plan_runs, usual_spreads
from profiler.driver.remote_hosts import RemoteHosts, racks_of
from profiler.spec import MeasurementSpec
from workloads.settings import Backend

HOSTS = """\
[[hosts]]
name = "a"
address = "10.0.0.1"
rack = "left"
gpus = 2
python = "/opt/dally/bin/python"

[[hosts]]
name = "b"
address = "10.0.0.2"
rack = "right"
gpus = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> HostsFile:
    (tmp_path / "hosts.toml").write_text(HOSTS)
    return read_hosts_file(tmp_path / "hosts.toml")


def test_hosts_stand_in_the_racks_that_the_file_names(file: HostsFile) -> None:
    assert [[host.name for host in rack.hosts] for rack in racks_of(file.hosts)] == [["a"], ["b"]]


def test_ranks_run_each_hosts_own_python_and_get_our_settings_of_nccl(
    file: HostsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    racks = racks_of(file.hosts)
    runs = plan_runs(usual_spreads(racks), racks, MeasurementSpec(("resnet18",), Backend.NCCL))

    commands = RemoteHosts(file, SshHosts(file)).commands(runs[-1])

    assert [item.argv[0] for item in commands] == ["/opt/dally/bin/python"] * 2 + ["python3"] * 2
    assert {item.env["NCCL_SOCKET_IFNAME"] for item in commands} == {"ib0"}
    assert {item.env["MASTER_ADDR"] for item in commands} == {"10.0.0.1"}
