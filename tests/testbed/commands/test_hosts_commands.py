"""The options that lead `dally testbed` to hosts: what is missing or does not go together is told at once."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.commands import main
from dally.errors import InputError
from dally.policies.registry import parse_policy
from slurm_plugin.local_cluster.cluster import ClusterError
from testbed.commands.existing_options import ExistingOptions, check_nodes, check_reservation
from testbed.persistent.control import find_persistent, open_local
from testbed.persistent.shape import SlurmPlace, hosts_shape
from testbed.persistent.state import PersistentError, PersistentState, own_mark, read_state, write_state
from tests.dally.hosts.sshd import free_port
from tests.testbed.remote.hosts_files import unreachable
from tests.testbed.running.fakes import FakeTestbedCluster
from tests.testbed.running.worlds import topology

RUN = ("run", "--workload", "demo", "--policy", "fifo", "--out", "none")
HOSTS = '[[hosts]]\nname = "n1"\nrack = "r1"\ngpus = 2\n[[hosts]]\nname = "n2"\nrack = "r2"\n'


@pytest.fixture
def hosts_toml(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(HOSTS)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "--hosts", "h"), "--hosts needs --shared"),
        (("up", "--fake-gpus"), "go with --hosts"),
        (("up", "--hosts", "h", "--shared", "/s", "--racks", "2"), "do not go with --hosts"),
        ((*RUN, "--existing", "--hosts", "h"), "--existing needs --hosts, --partition and --work"),
        ((*RUN, "--hosts", "h"), "go with --existing"),
        (("collect", "--out", "none", "--partition", "gpu"), "go with --existing"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(arguments: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["testbed", *arguments])
    assert (done.exit_code, message in done.output) == (2, True)


def test_a_shared_folder_must_be_absolute(hosts_toml: Path) -> None:
    with pytest.raises(InputError, match="--shared is here, must be an absolute path"):
        hosts_shape(hosts_toml, Path("here"), False, hosts_toml.parent)


def test_the_state_of_a_cluster_on_hosts_reads_back(hosts_toml: Path, tmp_path: Path) -> None:
    shape = hosts_shape(hosts_toml, tmp_path, True, tmp_path)
    place = SlurmPlace("/tmp/x/etc/slurm.conf", "/nfs/x", "gpu", {"n1": "eth0"})
    write_state(tmp_path, PersistentState(shape, 1.0, own_mark(), place=place))
    assert read_state(tmp_path) == find_persistent(tmp_path)
    assert shape.shown() == f"2 hosts of {hosts_toml} with 3 pretended GPUs in 2 racks, sharing {tmp_path}"
    with pytest.raises(PersistentError, match="is on hosts, not on this machine"):
        open_local(tmp_path)


def test_a_cluster_on_hosts_is_not_up_before_its_nodes_are(hosts_toml: Path, tmp_path: Path) -> None:
    shape = hosts_shape(hosts_toml, tmp_path, True, tmp_path)
    write_state(tmp_path, PersistentState(shape, 1.0, own_mark()))
    assert find_persistent(tmp_path) is None
    assert json.loads((tmp_path / "testbed.json").read_text())["place"] is None


def test_a_hosts_file_that_has_changed_is_refused(hosts_toml: Path, tmp_path: Path) -> None:
    shape = hosts_shape(hosts_toml, tmp_path, True, tmp_path)
    hosts_toml.write_text(HOSTS.replace("n2", "n3"))
    assert hosts_shape(hosts_toml, tmp_path, True, tmp_path) != shape
    with pytest.raises(InputError, match="has changed since the testbed came up"):
        shape.hosts()


def test_hosts_that_cannot_be_reached_are_told_in_one_line_and_nothing_stays(tmp_path: Path) -> None:
    folder, path = tmp_path / "lab", tmp_path / "hosts.toml"
    path.write_text(unreachable("n1", free_port()))
    options = ("--folder", str(folder), "--hosts", str(path), "--shared", "/s", "--logs", str(tmp_path))
    done = CliRunner().invoke(main, ["testbed", "up", *options])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "n1" in done.output
    assert not folder.exists()


def existing(reservation: str = "") -> ExistingOptions:
    return ExistingOptions(Path("h"), "gpu", Path("/work"), Path("logs"), reservation)


def test_in_a_reservation_only_slurms_own_scheduler_can_run() -> None:
    check_reservation(existing("ours"), [parse_policy("slurm")])
    check_reservation(existing(), [parse_policy("fifo")])
    with pytest.raises(InputError, match="with --reservation only policy slurm can run"):
        check_reservation(existing("ours"), [parse_policy("slurm"), parse_policy("fifo")])


class NamedPartition(FakeTestbedCluster):
    """A cluster of which only some nodes are in the partition."""

    def ask(self, *argv: str, stdin: str = "", timeout_s: float = 1.0) -> str:
        if argv[0] != "sinfo":
            raise ClusterError(argv[0])
        return "r1h1\nr1h2\n"


def test_machines_that_are_not_in_the_partition_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="r2h1, r2h2 of the cluster not in partition gpu; give --cluster"):
        check_nodes(existing(), NamedPartition(tmp_path), topology())
