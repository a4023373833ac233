"""The controller's HTTP server: a few read-only pages for commands, monitoring and `dally-sbatch`.

It runs beside the controller and never holds it up: pages come from what the controller has published, and
from the journal's file; connections are few, short and bounded. Who asks with a credential gets an answer
with one (`slurm_plugin.munge`), and where Slurm hides jobs is shown his own.
"""

import json
import os
import pwd
import re
import socket
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from errno import EADDRINUSE
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import urlsplit

from dally import __version__
from dally.errors import DallyError, InputError
from slurm_plugin.asking import CLUSTER, CREDENTIAL, PROOF, address
from slurm_plugin.controller.journal import JournalError, read_events
from slurm_plugin.munge import ProofError, Realm
from slurm_plugin.service.metrics import Metrics
from slurm_plugin.service.report import PublishedStatus, sorted_jobs

_CONNECTION_S = 10.0
"""A connection may last so long, while there is room for it."""

_SILENCE_S = 5.0
_MOST_ASKED = 2**17
"""A request has no more bytes."""

_MOST_CONNECTIONS = 32
"""So many may be asking, be answered, and be reading their answer, at each address."""

_MUNGE_S = 1.0
_programs = BoundedSemaphore(4)

_WHY = re.compile(r"/why/(\d{1,10}(?:_\d{1,10})?)", re.ASCII)
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_NUMBERS, _TAKERS = re.compile(rb"\bjob \d[\d_]*|\bdally_\d[\w.]*"), re.compile(rb'"by": \[[^]]+\]')
_HIDDEN = "Slurm hides jobs here (PrivateData); they are shown to those who prove by munge who they are"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: its status, what kind of text it is, the text, and words for the status line."""

    status: HTTPStatus
    kind: str
    body: bytes
    phrase: str | None = None


class Pages:
    """What is shown under each path.

    Args:
        status: What the controller has published.
        metrics: Its metrics.
        folder: Where its journal is.

    Attributes:
        realm: By what it proves that it is the controller; None: it cannot.
    """

    def __init__(
        self, status: PublishedStatus, metrics: Metrics, folder: Path, realm: Realm | None = None
    ) -> None:
        self.realm = realm
        self._status, self._folder = status, folder
        self._queue: tuple[float, bytes] = (0.0, b"")
        self._paths: dict[str, Callable[[int | None], Page]] = {
            "/health": lambda _: self._health(),
            "/metrics": lambda _: Page(HTTPStatus.OK, "text/plain; version=0.0.4", metrics.text()),
            "/queue": self._jobs,
            "/status": self._state,
        }

    def page(self, path: str, asker: int | None = None) -> Page:
        """The page of a path as a user may see it, None being anybody; any other path is not found."""
        if path in self._paths:
            return self._paths[path](asker)
        if match := _WHY.fullmatch(path):
            return self._why(match[1], asker)
        return _error(HTTPStatus.NOT_FOUND, "there is no such page")

    def _only_of(self, asker: int | None) -> str | None:
        """The user whose jobs alone the asker may see, empty for nobody's; None: he may see all."""
        if not self._status.private:
            return None
        if asker is None or self.realm is None:
            return ""
        try:
            name = pwd.getpwuid(asker).pw_name
        except KeyError:
            name = ""
        return None if asker in (0, os.geteuid()) or name == self.realm.slurm_user else name

    def _health(self) -> Page:
        reason, age_s = self._status.health()
        said = {"ok": not reason, "mode": self._status.mode, "age_s": age_s, "reason": reason}
        told = {name: getattr(self._status, name) for name in ("plans_by", "batching", "segments")}
        status = HTTPStatus.SERVICE_UNAVAILABLE if reason else HTTPStatus.OK
        return _page(said | told, status, reason or None)

    def _state(self, asker: int | None) -> Page:
        said = self._status.as_data()
        if said.get("learnt_costs") and self._only_of(asker) is not None:
            said["learnt_costs"] = []  # it names the models of others
        return _page(said)

    def _jobs(self, asker: int | None) -> Page:
        """All jobs; the text is made once for each report, however often it is asked for."""
        if self._status.last is None:
            return self._not_yet()
        latest, published_s, _ = self._status.last
        if (user := self._only_of(asker)) == "":
            return _error(HTTPStatus.FORBIDDEN, _HIDDEN)
        if user is not None:
            own = sorted_jobs(job for job in latest.jobs if job["user"] == user)
            return without_others(_page({"now_s": latest.now_s, "jobs": own}))
        if self._queue[0] != published_s:
            page = {"now_s": latest.now_s, "jobs": sorted_jobs(latest.jobs)}
            self._queue = published_s, json.dumps(page).encode()
        return Page(HTTPStatus.OK, _JSON, self._queue[1])

    def _why(self, job_id: str, asker: int | None) -> Page:
        if self._status.last is None:
            return self._not_yet()
        if (user := self._only_of(asker)) == "":
            return _error(HTTPStatus.FORBIDDEN, _HIDDEN)
        latest = self._status.last[0]
        job = next((job for job in latest.jobs if job["job"] == job_id), None)
        try:
            events = read_events(self._folder, job_id)
        except JournalError as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        # Slurm may use a number again: only the last job that had it counts.
        last = max((index for index, event in enumerate(events) if event["event"] == "submit"), default=0)
        whose = job or next(iter(events[last:]), None)
        if whose is None or user not in (None, whose.get("user")):
            return _error(HTTPStatus.NOT_FOUND, f"job {job_id} is none of Dally's")
        page = _page({"now_s": latest.now_s, "policy": latest.policy, "job": job, "events": events[last:]})
        return page if user is None else without_others(page)

    def _not_yet(self) -> Page:
        last = self._status.problems[-1].reason if self._status.problems else "it has just started"
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, f"no cycle has gone well yet: {last}")


def _page(content: object, status: HTTPStatus = HTTPStatus.OK, phrase: str | None = None) -> Page:
    return Page(status, _JSON, json.dumps(content).encode(), phrase)


def _error(status: HTTPStatus, reason: str) -> Page:
    return _page({"error": reason}, status)


def without_others(page: Page) -> Page:
    """A page whose texts name no jobs: they may be others'."""
    return replace(page, body=_TAKERS.sub(b'"by": ["a job"]', _NUMBERS.sub(b"a job", page.body)))


@contextmanager
def _one_of_few() -> Iterator[None]:
    """For running a program of munge's: but few run at once."""
    if not _programs.acquire(timeout=_MUNGE_S):
        raise TimeoutError  # ends the connection without an answer: who asks, asks again
    try:
        yield
    finally:
        _programs.release()


class PortError(DallyError):
    """The place to listen cannot be had now."""


class Server:
    """Serves pages at every address of a name, in threads of its own, until it is stopped.

    Args:
        listen: Where, as `host:port`.
        pages: What it shows.
        names: Names of this machine with a domain, under which it may be asked.

    Attributes:
        taken: Which of the addresses somebody else has, in words; empty if none.

    Raises:
        InputError: It is no such place.
        PortError: It cannot listen at any of the addresses.
    """

    def __init__(self, listen: str, pages: Pages, names: Collection[str] = ()) -> None:
        host, port = _place(listen)
        known = frozenset(name.lower() for name in (*names, host, socket.gethostname()))
        handler = partial(_Handler, pages, known)
        self._servers, self.taken = list[_HTTPServer](), ""
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            places = list(dict.fromkeys((family, str(told[0])) for family, _, _, _, told in found))
            for family, at in places:
                try:
                    self._servers.append(_HTTPServer(family, at, port, handler, alone=len(places) == 1))
                    port = self.port
                except OSError as error:
                    if error.errno == EADDRINUSE:
                        self.taken = f"cannot listen on {listen} at {at}: {error.strerror}"
                    failed = error
            if not self._servers:
                raise failed
        except OSError as error:
            raise PortError(f"cannot listen on {listen}: {error.strerror or error}") from error
        self._threads = [
            Thread(target=each.serve_forever, name="server", daemon=True) for each in self._servers
        ]
        for thread in self._threads:
            thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._servers[0].server_address[1])

    def stop(self) -> None:
        """Take no more connections; those that are open may end."""
        for server in self._servers:
            server.ends = True
        for server, thread in zip(self._servers, self._threads, strict=True):
            thread.join()
            server.server_close()


def _place(listen: str) -> tuple[str, int]:
    try:
        place = urlsplit(f"//{listen}")
        if place.port is not None and place.netloc == listen and "@" not in listen:
            return place.hostname or "", place.port
    except ValueError:
        pass
    raise InputError(f"listen is {listen!r}, must be host:port, like 127.0.0.1:9341")


class _HTTPServer(ThreadingHTTPServer):
    """A server that has a bounded number of connections open, and closes those that last too long.

    A connection gets a thread once its request is complete: who connects and says nothing costs next to
    nothing, and is the first to be closed.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(
        self, family: int, host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler], alone: bool
    ) -> None:
        self.address_family, self._alone = family, alone
        self._asking, self._listening = dict[Any, float](), dict[Any, float]()
        self.heard = dict[Any, bytes]()
        self._answers = BoundedSemaphore(_MOST_CONNECTIONS)
        self._selector, self.ends = DefaultSelector(), False
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Bind without asking DNS for this machine's name, which may take long."""
        if not self._alone and self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        TCPServer.server_bind(self)

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Take connections and requests, until it is to end."""
        self.socket.setblocking(False)
        with self._selector:
            self._selector.register(self, EVENT_READ)
            while not self.ends:
                for key, _ in self._selector.select(poll_interval):
                    if key.fileobj is self:
                        self._accept()
                    else:
                        self._hear(key.fileobj)
                for request, until_s in (*self._asking.items(), *list(self._listening.items())):
                    if time.monotonic() > until_s:
                        self._cut_off(request)

    def _accept(self) -> None:
        """Take the connections that wait; what is said on one already is heard before others need room."""
        for _ in range(_MOST_CONNECTIONS):
            try:
                request, _ = self.get_request()
            except OSError:
                return
            request.setblocking(False)
            self._take(self._asking, request)
            self.heard[request] = b""
            self._selector.register(request, EVENT_READ)
            self._hear(request)

    def _hear(self, request: Any) -> None:
        """Read on; answer a request that is complete, or so long that it is none."""
        if request not in self._asking:
            return
        try:
            said = request.recv(_MOST_ASKED)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.heard[request] += said
        if not said:
            self._cut_off(request)
        elif b"\r\n\r\n" in self.heard[request] or len(self.heard[request]) >= _MOST_ASKED:
            del self._asking[request]
            self._selector.unregister(request)
            try:
                self.process_request(request, None)
            except RuntimeError:  # no thread can be started
                self.shutdown_request(request)

    def _take(self, stage: dict[Any, float], request: Any) -> None:
        """Room for a connection that waits for its client; the oldest make it."""
        for oldest in list(stage)[: 1 - _MOST_CONNECTIONS]:
            self._cut_off(oldest)
        stage[request] = time.monotonic() + _CONNECTION_S

    @contextmanager
    def answering(self, request: Any) -> Iterator[None]:
        """For making an answer: its connection makes room for nobody, and afterwards for other answers.

        Raises:
            TimeoutError: Too many answers are being made.
        """
        if not self._answers.acquire(blocking=False):
            raise TimeoutError
        try:
            yield
        finally:
            self._answers.release()
            self._take(self._listening, request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection, whether it could be served or not."""
        self._listening.pop(request, None)
        self.heard.pop(request, None)
        super().shutdown_request(request)

    def _cut_off(self, request: Any) -> None:
        """End a connection; one that has a thread is closed by it."""
        if self._asking.pop(request, None) is not None:
            self._selector.unregister(request)
            self.shutdown_request(request)
        elif self._listening.pop(request, None) is not None:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request; repeats nothing of it."""

    server_version = f"dally/{__version__}"
    sys_version = ""
    default_request_version = "HTTP/1.0"
    timeout = _SILENCE_S
    server: _HTTPServer

    def setup(self) -> None:
        """Read the request from what was heard of it: nothing more is waited for."""
        super().setup()
        self.rfile = BytesIO(self.server.heard.pop(self.request))

    def __init__(self, pages: Pages, names: Collection[str], *arguments: Any) -> None:
        self._pages, self._names = pages, names
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Send a page, and to who proves who he is a proof that it is the controller's."""
        with self.server.answering(self.connection):
            page, proof = self._answer()
        self._send(page, proof)

    def _answer(self) -> tuple[Page, str | None]:
        realm, credential = self._pages.realm, self.headers.get(CREDENTIAL)
        if not self._is_meant():
            return _error(HTTPStatus.FORBIDDEN, "ask it at the address that is `url` in dally.toml"), None
        if realm is None or not realm.has_munge or credential is None:
            return self._pages.page(self.path), None
        at = address(self.connection.getsockname())
        try:
            with _one_of_few():
                asker = realm.asker(credential, self.path, at, _MUNGE_S)
            page = self._pages.page(self.path, asker[0])
            with _one_of_few():
                return page, realm.proof(asker, self.path, page.status, page.body, _MUNGE_S)
        except ProofError as error:
            return _error(HTTPStatus.UNAUTHORIZED, str(error)), None

    def _is_meant(self) -> bool:
        """Whether it is asked under a name of its own, and by no page of another's in a browser."""
        try:
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        except ValueError:
            return False
        foreign = self.headers.get("Origin") or self.headers.get("Sec-Fetch-Site") == "cross-site"
        # Nobody else has names without a domain; one with a domain may be made to mean any address.
        return not foreign and bool("." not in name or name in self._names or _ADDRESS.fullmatch(name))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request, in words that are the same for all."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self._send(_error(status, status.phrase.lower()))

    def _send(self, page: Page, proof: str | None = None) -> None:
        self.close_connection = True
        self.send_response(page.status, page.phrase)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if self._pages.realm is not None:
            self.send_header(CLUSTER, self._pages.realm.cluster)
        if proof is not None:
            self.send_header(PROOF, proof)
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: standard output is for events."""
