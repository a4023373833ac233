"""Hosts files: what they say, and that mistakes in them are named."""

from pathlib import Path

import pytest

from dally.errors import InputError
from dally.hosts.hosts_file import HostsFile, Login, SshHost, read_hosts_file

HOST = '[[hosts]]\nname = "n1"\nrack = "r1"\n'


def read(folder: Path, text: str) -> HostsFile:
    """The hosts file of this text in this folder."""
    path = folder / "hosts.toml"
    path.write_text(text, encoding="utf-8")
    return read_hosts_file(path)


def test_everything_given_is_read(tmp_path: Path) -> None:
    text = """
known_hosts = "known"
[[jumps]]
name = "login"
address = "login.example.org"
[[hosts]]
name = "n1"
address = "10.0.0.1"
user = "alice"
port = 2222
key = "/keys/id"
rack = "r1"
gpus = 8
python = "/opt/dally/bin/python"
jump = "login"
"""
    login = Login("n1", "10.0.0.1", "alice", 2222, Path("/keys/id"))
    jump = Login("login", "login.example.org", None, 22, None)
    host = SshHost(login, "r1", 8, "/opt/dally/bin/python", jump)
    assert read(tmp_path, text) == HostsFile((host,), tmp_path / "known")


def test_a_host_needs_only_name_and_rack(tmp_path: Path) -> None:
    login = Login("n1", "n1", None, 22, None)
    assert read(tmp_path, HOST) == HostsFile((SshHost(login, "r1", 1, "python3", None),), None)


def test_paths_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    (host,) = read(tmp_path, HOST + 'key = "~/.ssh/id"').hosts
    assert host.login.key == Path("/home/alice/.ssh/id")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"hosts is missing"),
        ("x", r"not valid TOML"),
        (HOST + 'gpu = "4"', r"hosts\[0\].gpu is not a known key; valid: name, .*gpus"),
        ('[[hosts]]\nrack = "r1"', r"hosts\[0\].name is missing"),
        ('[[hosts]]\nname = "n1"', r"hosts\[0\].rack is missing"),
        ('[[hosts]]\nname = "a b"\nrack = "r1"', r"'a b', must be letters"),
        (HOST + "gpus = 0", r"hosts\[0\].gpus is 0"),
        (HOST + "port = 70000", r"port is 70000, must be 1 to 65535"),
        (HOST + HOST, r"hosts\[1\].name is 'n1', as for another one"),
        (HOST + 'jump = "gate"', r"jump is 'gate'; valid: none"),
        (HOST + 'jump = "gate"\n[[jumps]]\nname = "login"', r"jump is 'gate'; valid: login"),
        (HOST + '[[jumps]]\nname = "login"\nrack = "r1"', r"jumps\[0\].rack is not a known key"),
    ],
)
def test_a_mistake_is_named_with_the_file_and_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/hosts.toml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_hosts_file(tmp_path / "none.toml")
