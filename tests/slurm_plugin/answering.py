"""A server that gives one answer, for tests of those who ask."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from slurm_plugin.asking import CLUSTER, CREDENTIAL, PROOF, address
from slurm_plugin.munge import Realm
from tests.patience import LONGEST_S


def without_munge(folder: Path) -> str:
    """The line of dally.toml for a site where nobody can prove anything; its slurm.conf is in the folder."""
    (folder / "slurm.conf").write_text("ClusterName=lab\nAuthType=auth/none\n")
    return f'cluster = "{folder}"\n'


def two_addresses(host: str, port: int, *more: object, **kinds: object) -> list[tuple[Any, ...]]:
    """What `socket.getaddrinfo` finds where localhost is ::1, too, as /etc/hosts has it."""
    known = {"localhost": ("::1", "127.0.0.1")}.get(host, (host,))
    families = [socket.AF_INET6 if ":" in at else socket.AF_INET for at in known]
    return [
        (family, socket.SOCK_STREAM, 6, "", (at, port, 0, 0) if ":" in at else (at, port))
        for family, at in zip(families, known, strict=True)
    ]


@contextmanager
def answering(status: int, body: bytes = b"", path: str = "/", realm: Realm | None = None) -> Iterator[str]:
    """A server's address; below a path it answers with a status and a text, elsewhere it finds nothing.

    With a realm it proves that it is the controller; it says that its cluster is lab.
    """

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = status if self.path.startswith(path) else 404
            self.send_response(found)
            self.send_header(CLUSTER, "lab")
            if realm is not None:
                asker = realm.asker(
                    self.headers[CREDENTIAL], self.path, address(self.connection.getsockname()), LONGEST_S
                )
                self.send_header(PROOF, realm.proof(asker, self.path, found, body, LONGEST_S))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
