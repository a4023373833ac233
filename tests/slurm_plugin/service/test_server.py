"""The controller's pages, and the server that shows them."""

import http.client
import json
import pwd
import re
import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.vanished_jobs import GONE_S
from slurm_plugin.munge import Realm
from slurm_plugin.service.metrics import Metrics
from slurm_plugin.service.report import GRACE_S, CycleProblem, PublishedStatus
from slurm_plugin.service.server import Page, Pages, PortError, Server, without_others
from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.answering import two_addresses
from tests.slurm_plugin.daemons import DaemonSite


@pytest.fixture
def board() -> PublishedStatus:
    return PublishedStatus("normal")


@pytest.fixture
def server(board: PublishedStatus, tmp_path: Path) -> Iterator[Server]:
    """A server of a controller that has not cycled yet."""
    server = Server("127.0.0.1:0", Pages(board, Metrics(board), tmp_path))
    yield server
    server.stop()


def get(port: int, path: str, method: str = "GET") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONGEST_S)
    connection.request(method, path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.headers["Content-Type"] == "application/json" else text


def served(folder: Path, *paths: str, shadow: bool = False, **settings: Any) -> list[tuple[int, Any]]:
    """Pages of a controller after its first cycle, with job 1 running and job 2 waiting."""
    site = DaemonSite(folder, listen="127.0.0.1:0", **settings)
    site.mode = ControllerMode(shadow=shadow)
    for _ in range(2):
        site.submit(nodes=4, gpus_per_node=8)
    said: list[tuple[int, Any]] = []

    def look() -> None:
        assert site.daemon is not None
        assert site.daemon.server is not None
        said.extend(get(site.daemon.server.port, path) for path in paths)

    site.run(look)
    return said


def test_a_controller_that_cycles_is_healthy(tmp_path: Path) -> None:
    ((status, said),) = served(tmp_path, "/health")
    assert (status, said["ok"], said["mode"]) == (200, True, "normal")
    assert (said["plans_by"], said["batching"]) == ("", "fixed")
    assert said["age_s"] < 60


def test_a_shadow_must_not_be_given_jobs(tmp_path: Path) -> None:
    ((status, said),) = served(tmp_path, "/health", shadow=True)
    assert (status, said["reason"]) == (503, "shadow mode starts no jobs")


def test_before_the_first_good_cycle_it_is_not_healthy(server: Server, board: PublishedStatus) -> None:
    assert get(server.port, "/health")[0] == 503
    board.add_problem(CycleProblem(0.0, "slurm_unavailable", "squeue: no answer"))
    status, said = get(server.port, "/queue")
    assert (status, said["error"]) == (503, "no cycle has gone well yet: squeue: no answer")


def test_a_controller_whose_cycles_no_longer_go_well_is_not_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = DaemonSite(tmp_path, poll_s=10.0)
    site.run()
    assert site.daemon is not None
    board, now_s = site.daemon.status, time.monotonic()
    monkeypatch.setattr("slurm_plugin.service.report.time.monotonic", lambda: now_s + 29 + GRACE_S)
    assert board.as_data()["healthy"]
    monkeypatch.setattr("slurm_plugin.service.report.time.monotonic", lambda: now_s + 31 + GRACE_S)
    assert not board.as_data()["healthy"]


def test_the_queue_has_all_jobs_those_that_run_first(tmp_path: Path) -> None:
    ((status, said),) = served(tmp_path, "/queue")
    assert status == 200
    assert [(job["job"], job["state"], job["gpus"]) for job in said["jobs"]] == [
        ("1", "running", 32),
        ("2", "pending", 32),
    ]
    assert said["jobs"][0]["nodes"] == {"n1": 8, "n2": 8, "n3": 8, "n4": 8}


def test_why_has_the_job_and_its_events(tmp_path: Path) -> None:
    ((status, said),) = served(tmp_path, "/why/1")
    assert (status, said["job"]["state"]) == (200, "running")
    assert [event["event"] for event in said["events"]] == ["submit", "start"]


def test_why_of_an_unknown_job_is_not_found(tmp_path: Path) -> None:
    ((status, said),) = served(tmp_path, "/why/17_3")
    assert (status, said["error"]) == (404, "job 17_3 is none of Dally's")


def test_a_job_that_has_left_is_still_told_of_and_an_older_one_of_its_number_is_not(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, listen="127.0.0.1:0")
    site.submit(gpus_per_node=8)
    said: list[Any] = []

    def again() -> None:
        site.slurm.cancel("1")
        site.slurm._forget(site.slurm._jobs["1"])
        site.slurm._next_job = 1

    def look() -> None:
        assert site.daemon is not None
        assert site.daemon.server is not None
        said.append(get(site.daemon.server.port, "/why/1")[1])

    def later() -> None:
        site.now_s += GONE_S

    site.run(again, later, later, look, lambda: site.submit(gpus_per_node=4) and None, look)
    assert said[0]["job"] is None
    assert [event["event"] for event in said[0]["events"]] == ["submit", "start", "end"]
    assert [event["gpus"] for event in said[1]["events"] if event["event"] == "submit"] == [4]


def test_status_counts_jobs_and_gpus(tmp_path: Path) -> None:
    ((_, said),) = served(tmp_path, "/status")
    assert (said["jobs"]["running"], said["jobs"]["pending"]) == (1, 1)
    assert said["gpus"] == {"total": 32, "used": 32, "free": 0, "unavailable": 0}
    assert (said["healthy"], said["policy"]) == (True, "fifo")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/queue/",
        "/why/",
        "/why/1/2",
        "/why/1%20OR%201",
        "/why/../status",
        "/why/12345678901",
        "/..%2f..%2fetc/passwd",
        "/health?x",
        "/<script>alert(1)</script>",
    ],
)
def test_other_paths_are_not_found_and_not_repeated(server: Server, path: str) -> None:
    assert get(server.port, path) == (404, {"error": "there is no such page"})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "<X>"])
def test_it_can_only_be_read(server: Server, method: str) -> None:
    said = raw(server.port, f"{method} /status HTTP/1.0\r\n\r\n".encode())
    assert said.startswith(b"HTTP/1.0 405 Method Not Allowed\r\n")
    assert b"<" not in said


@pytest.mark.parametrize(
    "request_text",
    [
        b"GET /" + b"a" * 100_000 + b" HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.0\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"GET /health HTTP/1.0\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01 nonsense \xff\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
    ],
)
def test_what_is_too_long_or_no_request_is_refused_and_not_repeated(
    server: Server, request_text: bytes
) -> None:
    said = raw(server.port, request_text)
    assert re.match(rb"HTTP/1.0 (400|414|431|505) ", said) or not said
    assert b"aaaa" not in said
    assert b"nonsense" not in said


def raw(port: int, text: bytes) -> bytes:
    """What comes back for bytes; nothing if the connection is cut."""
    said = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S) as connection:
            connection.sendall(text)
            while part := connection.recv(65536):
                said += part
    except ConnectionError:
        pass
    return said


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("", 200),
        ("Host: 127.0.0.1:9341\r\n", 200),
        ("Host: [::1]:9341\r\n", 200),
        ("Host: head:9341\r\n", 200),
        ("Host: head.cluster.example:9341\r\n", 200),
        ("Host: evil.example:9341\r\n", 403),
        ("Host: 127.0.0.1.evil.example\r\n", 403),
        ("Host: [::1\r\n", 403),
        ("Host: head:9341\r\nOrigin: http://evil.example\r\n", 403),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
    ],
)
def test_a_page_of_anothers_in_a_browser_gets_nothing(
    board: PublishedStatus, tmp_path: Path, headers: str, status: int
) -> None:
    server = Server("127.0.0.1:0", Pages(board, Metrics(board), tmp_path), ("Head.cluster.example",))
    for path in ("/status", "/metrics"):
        said = raw(server.port, f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
        assert said.startswith(f"HTTP/1.0 {status} ".encode())
        assert (b"normal" in said) == (status == 200)
    server.stop()


def test_where_slurm_hides_jobs_everybody_is_shown_what_squeue_shows_him(
    tmp_path: Path, users: tuple[str, ...]
) -> None:
    site = DaemonSite(tmp_path)
    site.slurm.private = True
    for user in users:  # the second one waits for the first, as its reason says
        site.submit(nodes=4, gpus_per_node=8, user=user, model=f"of-{user}")
    site.run()
    assert site.daemon is not None
    pages = site.daemon.pages
    pages.realm = Realm("c", True, "", "root", "bin")
    alice, bob, slurm = (pwd.getpwnam(name).pw_uid for name in (*users, "bin"))

    def seen(asker: int | None) -> list[str]:
        said = json.loads(pages.page("/queue", asker).body)
        return [job["job"] for job in said.get("jobs", ())]

    assert [seen(asker) for asker in (0, slurm, alice, bob, None)] == [
        ["1", "2"],
        ["1", "2"],
        ["1"],
        ["2"],
        [],
    ]
    found = [[pages.page(f"/why/{job}", asker).status for job in (1, 2)] for asker in (0, alice, bob, None)]
    assert found == [[200, 200], [200, 404], [404, 200], [403, 403]]
    for asker in (alice, None):
        shown = b"".join(pages.page(path, asker).body for path in ("/queue", "/why/1", "/why/2", "/status"))
        assert users[1].encode() not in shown
        assert b'"2"' not in shown
    assert users[1].encode() not in pages.page("/metrics").body


def test_words_about_ones_own_job_name_no_others() -> None:
    body = json.dumps(
        {"job": "17", "by": ["23"], "reason": "job 23_4 would have to leave, for job 5's of dally_6_12.early"}
    ).encode()
    shown = json.loads(without_others(Page(HTTPStatus.OK, "", body)).body)
    assert shown == {
        "job": "17",
        "by": ["a job"],
        "reason": "a job would have to leave, for a job's of a job",
    }


def test_a_request_that_is_complete_is_answered_however_many_connect_meanwhile(
    board: PublishedStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Pages(board, Metrics(board), tmp_path)
    server, asked, goes_on = Server("127.0.0.1:0", pages), threading.Event(), threading.Event()

    def slow(path: str, asker: int | None = None) -> Page:
        asked.set()
        goes_on.wait(LONGEST_S)
        return Page(HTTPStatus.OK, "text/plain", b"answer")

    monkeypatch.setattr(pages, "page", slow)
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) as patient:
        patient.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        assert asked.wait(LONGEST_S)
        bare = [socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) for _ in range(100)]
        wait_until(lambda: sum(map(is_closed, bare)) >= 100 - 32, "the bare connections")
        goes_on.set()
        said = b""
        while part := patient.recv(65536):
            said += part
    assert said.endswith(b"answer")
    for connection in bare:
        connection.close()
    server.stop()


def test_a_slow_client_is_cut_off_and_holds_up_nobody(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) as slow:
        slow.sendall(b"GET /sta")
        assert get(server.port, "/status")[0] == 200
        later = time.monotonic() + 11
        monkeypatch.setattr("slurm_plugin.service.server.time.monotonic", lambda: later)
        assert slow.recv(100) == b""


def test_many_slow_clients_keep_nobody_from_an_answer(server: Server) -> None:
    held = [slow_client(server.port) for _ in range(64)]
    assert get(server.port, "/health")[0] == 503
    assert [get(server.port, "/status")[0] for _ in range(40)] == [200] * 40
    for connection in held:
        connection.close()


def slow_client(port: int) -> socket.socket:
    """A connection on which a request has begun."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S)
    connection.sendall(b"GET /hea")
    return connection


def test_of_more_connections_than_it_takes_the_oldest_are_closed(server: Server) -> None:
    held = [socket.create_connection(("127.0.0.1", server.port), timeout=LONGEST_S) for _ in range(40)]
    deadline = time.monotonic() + 30
    closed: list[bool] = []
    while closed.count(True) < 8 and time.monotonic() < deadline:
        closed = [is_closed(connection) for connection in held]
    assert closed == [True] * 8 + [False] * 32
    for connection in held:
        connection.close()


def test_a_connection_that_no_thread_can_serve_takes_no_room(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("socketserver.ThreadingMixIn.process_request", fail)
        for _ in range(40):
            assert raw(server.port, b"GET /status HTTP/1.0\r\n\r\n") == b""
    assert get(server.port, "/status")[0] == 200


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("listen", ["9341", "head", "head:", "head:x", "head:99999", "a@head:1", "h:1/x", ""])
def test_a_wrong_place_to_listen_is_named(board: PublishedStatus, tmp_path: Path, listen: str) -> None:
    with pytest.raises(InputError, match="must be host:port"):
        Server(listen, Pages(board, Metrics(board), tmp_path))


def test_a_taken_port_is_named(server: Server, board: PublishedStatus, tmp_path: Path) -> None:
    with pytest.raises(PortError, match=f"cannot listen on 127.0.0.1:{server.port}: Address already in use"):
        Server(f"127.0.0.1:{server.port}", Pages(board, Metrics(board), tmp_path))


def test_it_listens_at_every_address_of_a_name(
    board: PublishedStatus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.getaddrinfo", two_addresses)
    server = Server("localhost:0", Pages(board, Metrics(board), tmp_path))
    for at in ("::1", "127.0.0.1"):
        with socket.create_connection((at, server.port), timeout=LONGEST_S):
            pass
    assert server.taken == ""
    with pytest.raises(PortError, match="Address already in use"):
        Server(f"localhost:{server.port}", Pages(board, Metrics(board), tmp_path))
    server.stop()


def test_it_listens_on_ipv6_too(board: PublishedStatus, tmp_path: Path) -> None:
    server = Server("[::1]:0", Pages(board, Metrics(board), tmp_path))
    with socket.create_connection(("::1", server.port), timeout=LONGEST_S):
        server.stop()
