"""Whoever takes the controller's port is not believed and holds up nobody; who asks sees what he may."""

import copy
import json
import os
import pwd
import random
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from math import inf, nan
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.commands import main
from slurm_plugin.asking import Answer, NoControllerError, ask_controller, ask_page
from slurm_plugin.config import Config, load_config
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.munge import ProofError, read_realm
from slurm_plugin.request import Request, encode
from slurm_plugin.service.metrics import Metrics
from slurm_plugin.service.report import PublishedStatus
from slurm_plugin.service.server import Pages, Server
from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.answering import two_addresses, without_munge
from tests.slurm_plugin.live_site import LiveSite
from tests.slurm_plugin.service.pictures import job, picture
from tests.slurm_plugin.submit.stubbed_site import StubbedSite

ENDS = b"HTTP/1.0 200 OK\r\nDally-Cluster: lab\r\n\r\n"
SHORT_S = 0.5

Says = Callable[[socket.socket, bytes], object]
"""What somebody does on a connection on which he was asked something."""


@contextmanager
def saying(says: Says, at: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """The address of somebody who says whatever he likes on each connection."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            asked = b""
            while not asked.endswith(b"\r\n\r\n"):
                asked += connection.recv(65536) or b"\r\n\r\n"
            says(connection, asked)

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

    family = socket.AF_INET6 if ":" in at else socket.AF_INET
    with socket.create_server((at, port), family=family) as listening:
        Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def text(whole: bytes) -> Says:
    """Who always says the same."""
    return lambda peer, _: peer.sendall(whole)


def told(url: str, asked: bytes) -> bytes:
    """What is answered to these bytes."""
    port = int(url.rpartition(":")[2])
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S) as connection:
        connection.sendall(asked)
        while part := connection.recv(65536):
            said += part
    return said


@pytest.fixture(scope="module")
def munge() -> Iterator[Path]:
    """A folder with a munge of its own, and the slurm.conf that names its socket."""
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "key").touch(mode=0o600)
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "slurm.conf").write_text(
        f"ClusterName=Lab\nInclude more.conf\nAuthInfo=socket={folder}/socket\n"
    )
    (folder / "more.conf").write_text("SlurmUser=root # SlurmUser=bin\n")
    files = (f"--{name}-file={folder / name}" for name in ("key", "seed", "pid", "log"))
    daemon = subprocess.Popen(["munged", "--foreground", "--force", f"--socket={folder}/socket", *files])
    wait_until((folder / "socket").exists, "munged")
    yield folder
    daemon.terminate()
    daemon.wait()
    shutil.rmtree(folder)


def config(folder: Path, url: str, **settings: Any) -> Config:
    return Config(("gpu",), cluster=str(folder), url=url, **{"user": "root", **settings})


@pytest.fixture
def passed_on(controller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions name the controller's address, whoever is asked: as if somebody could pass them on."""
    at = f"[127.0.0.1]:{controller.rpartition(':')[2]}"
    monkeypatch.setattr("slurm_plugin.asking.address", lambda _: at)


@pytest.fixture
def controller(munge: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a controller that has just started."""
    board = PublishedStatus("normal")
    realm = read_realm(config(munge, ""), SHORT_S)
    assert (realm.cluster, realm.slurm_user, realm.has_munge) == ("lab", "root", True)
    server = Server("127.0.0.1:0", Pages(board, Metrics(board), tmp_path, realm))
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


def test_the_controller_proves_that_it_is_the_one(munge: Path, controller: str) -> None:
    answer = ask_page(config(munge, controller), "/health", LONGEST_S)
    assert (answer.status, answer.reason, answer.proven) == (503, "no cycle has gone well yet", True)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"", "it does not say that it is cluster lab's"),
        (b"Dally-Cluster: other\r\n", "it does not say that it is cluster lab's"),
        (b"Dally-Cluster: lab\r\n", "it shows no proof of being user root's"),
        (b"Dally-Cluster: lab\r\nDally-Proof: MUNGE:AwQFAABb:\r\n", "unmunge: Error: "),
    ],
)
def test_well_formed_lies_are_not_believed(munge: Path, head: bytes, why: str) -> None:
    body = json.dumps({"ok": True, "healthy": True}).encode()
    with saying(text(b"HTTP/1.0 200 OK\r\n" + head + b"\r\n" + body)) as url:
        reason, _ = ask_controller(config(munge, url))
    assert reason.startswith(f"what answers at {url} is not known to be the controller: {why}")


def test_the_controller_of_another_cluster_is_not_believed(
    munge: Path, controller: str, tmp_path: Path
) -> None:
    conf = (munge / "slurm.conf").read_text()
    (tmp_path / "slurm.conf").write_text(conf.replace("Lab", "other"))
    with pytest.raises(NoControllerError, match="is cluster other's"):
        ask_page(config(tmp_path, controller), "/status", LONGEST_S)


def test_only_the_controllers_user_can_read_a_question_and_answer_it(
    munge: Path, users: tuple[str, ...]
) -> None:
    realm = read_realm(config(munge, ""), SHORT_S)
    nonce = "0" * 32

    def run(user: str, *words: str, text: str) -> subprocess.CompletedProcess[str]:
        command = [words[0], f"--socket={realm.socket}", *words[1:]]
        return subprocess.run(command, user=user, input=text, capture_output=True, text=True)

    asked = realm.question("/health", "[127.0.0.1]:1", nonce, LONGEST_S)
    assert "Unauthorized" in run(users[1], "unmunge", text=asked).stderr
    answer = f"dally answers lab /health {nonce} 200 {sha256(b'').hexdigest()}"
    for user, refused in ((users[1], "answers"), ("root", "")):
        made = run(user, "munge", "--restrict-uid=0", text=answer).stdout
        try:
            realm.check(made, "/health", nonce, 200, b"", LONGEST_S)
            said = ""
        except ProofError as error:
            said = str(error)
        assert said.endswith(refused)
        assert bool(said) == bool(refused)
    # What the controller makes for somebody, nobody else can use: not even Slurm, as the controller's user.
    proof = realm.proof((65534, nonce), "/health", 200, b"", LONGEST_S)
    assert "Unauthorized" in run("root", "unmunge", text=proof).stderr


@pytest.mark.usefixtures("passed_on")
def test_an_answer_counts_once_and_for_one_question(munge: Path, controller: str) -> None:
    heard: list[bytes] = []

    def relay(peer: socket.socket, asked: bytes) -> None:
        heard.append(heard[0] if heard else told(controller, asked))
        peer.sendall(heard[-1])

    with saying(relay) as url:
        assert ask_page(config(munge, url), "/health", LONGEST_S).status == 503
        with pytest.raises(NoControllerError, match="Replayed credential"):
            ask_page(config(munge, url), "/health", LONGEST_S)


@pytest.mark.usefixtures("passed_on")
def test_an_answer_that_was_changed_on_its_way_is_not_believed(munge: Path, controller: str) -> None:
    def relay(peer: socket.socket, asked: bytes) -> None:
        said = told(controller, asked)
        peer.sendall(said.replace(b"503", b"200", 1))

    with saying(relay) as url, pytest.raises(NoControllerError, match="for another answer"):
        ask_page(config(munge, url), "/health", LONGEST_S)


@pytest.mark.usefixtures("passed_on")
def test_a_question_counts_once_and_for_one_page(munge: Path, controller: str) -> None:
    asked: list[bytes] = []

    def hear(peer: socket.socket, one: bytes) -> None:
        asked.append(one)
        peer.sendall(ENDS)

    with saying(hear) as url:
        for _ in range(2):
            with pytest.raises(NoControllerError):
                ask_page(config(munge, url), "/status", LONGEST_S)
    assert told(controller, asked[0]).startswith(b"HTTP/1.0 200 ")
    assert told(controller, asked[0]).startswith(b"HTTP/1.0 401 ")
    said = told(controller, asked[1].replace(b"GET /status", b"GET /queue"))
    assert said.startswith(b"HTTP/1.0 401 ")
    assert b"Dally-Proof" not in said


def test_who_has_another_address_of_the_controllers_name_is_passed_by_and_can_pass_nothing_on(
    munge: Path, controller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", two_addresses)
    port, heard = int(controller.rpartition(":")[2]), list[bytes]()

    def relay(peer: socket.socket, asked: bytes) -> None:
        heard.append(told(controller, asked))
        peer.sendall(heard[-1])

    for says in (relay, text(b""), silence, text(b"HTTP/1.0 200 OK\r\nDally-Cluster: lab\r\n\r\n{}")):
        with saying(says, "::1", port):
            answer = ask_page(config(munge, f"http://localhost:{port}"), "/health", 5.0)
        assert (answer.status, answer.proven) == (503, True)
    assert [said.split(b"\r\n")[0] for said in heard] == [b"HTTP/1.0 401 Unauthorized"]


def test_who_is_cut_off_asks_again_until_the_deadline(munge: Path, controller: str) -> None:
    cut = list[bytes]()

    def relay(peer: socket.socket, asked: bytes) -> None:
        cut.append(asked)
        if len(cut) > 3:
            peer.sendall(told(controller, asked))

    with saying(relay) as url, pytest.MonkeyPatch.context() as patch:
        patch.setattr("slurm_plugin.asking.address", lambda _: f"[127.0.0.1]:{controller.rpartition(':')[2]}")
        assert ask_page(config(munge, url), "/health", LONGEST_S).proven
    assert len({*cut}) == 4


def test_a_user_who_connects_all_the_time_keeps_nobody_from_an_answer(munge: Path, controller: str) -> None:
    ends, port = Event(), int(controller.rpartition(":")[2])

    def connect() -> None:
        held = deque[socket.socket](maxlen=200)
        while not ends.is_set():
            with suppress(OSError):
                held.append(socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S))

    attackers = [Thread(target=connect, daemon=True) for _ in range(2)]
    for attacker in attackers:
        attacker.start()
    try:
        for _ in range(40):
            assert ask_page(config(munge, controller), "/health", LONGEST_S).proven
    finally:
        ends.set()
        for attacker in attackers:
            attacker.join()


def drip(peer: socket.socket, _: bytes) -> None:
    peer.sendall(ENDS)
    while True:
        peer.sendall(b" ")
        time.sleep(0.02)


def flood(peer: socket.socket, _: bytes) -> None:
    while True:
        peer.sendall(ENDS + b"[" * 2**20)


def silence(peer: socket.socket, _: bytes) -> None:
    time.sleep(60)


@pytest.mark.parametrize("says", [drip, flood, silence, text(b"")])
@pytest.mark.parametrize("page", ["/health", "/queue"])
def test_there_is_one_deadline_whatever_is_said(tmp_path: Path, says: Says, page: str) -> None:
    without_munge(tmp_path)
    with saying(says) as url:
        began_s = time.monotonic()
        with pytest.raises(NoControllerError, match=url):
            ask_page(config(tmp_path, url), page, SHORT_S)
        assert time.monotonic() - began_s < 10 * SHORT_S


def test_munge_that_hangs_is_not_waited_for(
    munge: Path, controller: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "munge").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "munge").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(NoControllerError, match="munge gives no answer in time"):
        ask_page(config(munge, controller), "/health", SHORT_S)


@settings(max_examples=200)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_an_answer_or_none(said: bytes, with_head: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        without_munge(Path(name))
        whole = ENDS * with_head + said
        with saying(text(whole)) as url, suppress(NoControllerError):
            ask_page(config(Path(name), url), "/health", SHORT_S)


@pytest.mark.parametrize(
    ("says", "held"),
    [
        (drip, False),
        (text(ENDS + b"[" * 50_000), False),
        (text(ENDS + b'{"plans_by": "\\u001b[2J", "batching": "a\\u0000b"}'), True),
    ],
)
def test_a_submission_goes_on_whatever_is_said(tmp_path: Path, says: Says, held: bool) -> None:
    site = StubbedSite(tmp_path)
    with saying(says) as url:
        site.configure(f'url = "{url}"')
        began_s = time.monotonic()
        done = site.submit("--min-gpus=1", "job.sh")
        assert time.monotonic() - began_s < 20
    assert (done.returncode, "--hold" in site.argv) == (0, held)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


ODD: list[Any] = [
    None, True, -1, 0, 3, 1e308, inf, nan, 10**300, -(10**40), "", "a", "\x1b[2J\ud800\0", "x" * 5000,
    "n[1-99999999]", [], [[]], ["a", 1], {}, {"a": {}}, {"n1": "x"}, [[[[[[[[[[]]]]]]]]]], [None] * 50,
]  # fmt: skip


def changed(value: Any, luck: random.Random) -> Any:
    """A value in which something is another, or is missing."""
    if luck.random() < 0.3 or not (isinstance(value, dict | list) and value):
        return copy.deepcopy(luck.choice(ODD))
    key = luck.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if luck.random() < 0.2:
        del value[key]
    else:
        value[key] = changed(value[key], luck)
    return value


def test_no_command_is_upset_by_odd_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    view = picture(3, 2, 1)
    counts = {"runs": 3, "jobs": 2, "waiting": {"rack": {"factor": 1.1, "sigma": 0.2}}}
    belief = {"model": "a", "gpu_type": "h100", "user": None, "pace": 1.0, "pace_sigma": 0.1, **counts}
    belief["predicted"] = True
    rate = {"gpu_types": "", "gpus": 1, "batch": 2, "rate": 3.0}
    amounts = {"samples": 5.0, "total": 9.0, "done": 0.5, "epoch": 2.0, "batch": 3, "loss": 0.1, "noise": 0.0}
    reported = {**amounts, "heard_s": 1e9, "throughputs": [rate]}
    checked = {
        "basis": "profile",
        "waiting_sigma": 0.1,
        "beliefs": [belief],
        "check": {"slower": True, "words": "w"},
    }
    mine = job(17, "pending", progress=reported, learnt=checked, plan="p", assumed_slowdown=1.2)
    times = {"configured": "auto", "knowledge": "history", "ended": 99, "since_s": 1e9, "limit_used": 0.5}
    right = {"right": {"limits": 0.6, "history": 0.7}}
    spot = {"job": "17", "gpus": {"n1": 8}, "reason": "r", "level": "rack", "until": 1e9, "by": ["3"]}
    stop = {"signal": "USR1", "grace_s": 3.0, "slowdown": 1.5, "status": "ENDED"}
    events = [
        {"t": 1e9, "event": kind, **spot, **stop} for kind in ("submit", "wait", "start", "preempt", "stop")
    ]
    genuine: dict[str, Any] = {
        "/status": {**view.status, "learnt_costs": [belief], "running_times": {**times, **right}},
        "/queue": {"now_s": time.time(), "jobs": [*view.jobs, mine]},
        "/why/17": {"now_s": time.time(), "policy": "dally", "job": mine, "events": events},
    }
    luck, changes = random.Random(45), [0]

    def answer(site: Config, page: str, timeout_s: float) -> Answer:
        said = copy.deepcopy(genuine[page])
        for _ in range(luck.choice(changes)):
            said = changed(said, luck)
        return Answer(200, said if isinstance(said, dict) else None, True)

    monkeypatch.setattr("slurm_plugin.service.cli.ask_page", answer)
    (tmp_path / "dally.toml").write_text('partitions = ["gpu"]\n')
    commands = (
        ["status"],
        ["queue"],
        ["queue", "--me"],
        ["why", "17"],
        ["top", "--once"],
        ["models", "--learnt"],
    )
    for number in range(4000):
        if number == len(commands):
            changes[:] = 1, 1, 2, 5
        words = [*commands[number % len(commands)], "--config", str(tmp_path / "dally.toml")]
        done = CliRunner().invoke(main, words)
        assert isinstance(done.exception, SystemExit | None), (number, words, done.exception)
        assert done.exit_code in ((0, 1, 3) if number >= len(commands) else (0,)), done.stderr
        assert not (done.exit_code == 1 and done.stderr.count("\n") != 1), done.stderr
        assert done.stdout.isprintable() or all(line.isprintable() for line in done.stdout.splitlines())


def asked_as(user: str, site: Config, page: str) -> Answer:
    """What a user of this machine is answered."""
    account = pwd.getpwnam(user)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
        answer = ask_page(site, page, 30.0)
        os.write(writing, json.dumps([answer.status, answer.told, answer.proven]).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = json.loads(pipe.read())
    os.waitpid(child, 0)
    return Answer(*said)


def test_where_slurm_hides_jobs_users_are_shown_their_own(
    cluster_folder: Path, users: tuple[str, ...]
) -> None:
    spec = LocalClusterSpec(cluster_folder, nodes=2, racks=1, extra_conf=("PrivateData=jobs",))
    local_slurm = LocalSlurm(spec)
    local_slurm.start()
    try:
        site = LiveSite(local_slurm, ("gpu",))
        site.start_controller()
        mark = f"--comment={encode(Request(model='secret'))}"
        words = ("sbatch", "--parsable", "--hold", mark, "--gres=gpu:8", "-o/dev/null", "--wrap=sleep 600")
        jobs = {user: local_slurm.run(*words, user=user).strip() for user in users}
        own = load_config(local_slurm.work / "dally.toml")
        site.wait_for(lambda: len(ask_page(own, "/queue", 30.0).told["jobs"]) == 2, "both jobs")  # type: ignore[index]
        for user, number in jobs.items():
            said = asked_as(user, own, "/queue").told
            assert said is not None
            assert [each["job"] for each in said["jobs"]] == [number]
            found = {other: asked_as(user, own, f"/why/{other}").status for other in jobs.values()}
            assert found == {other: 200 if other == number else 404 for other in jobs.values()}
        with pytest.raises(urllib.error.HTTPError, match="403"):  # without a proof of who asks
            urllib.request.urlopen(f"{own.url}/queue", timeout=30)
        with urllib.request.urlopen(f"{own.url}/status", timeout=30) as said_to_anybody:
            assert "jobs" in json.loads(said_to_anybody.read())
        site.end_controller()
    finally:
        local_slurm.stop()
