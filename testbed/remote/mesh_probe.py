"""One host's part in a test of TCP between all hosts; sent to hosts as a text, so it needs Python alone.

`listen NAME` takes connections on a port that it prints, and sends each its name. `reach JSON` connects to
others, each [name, address, port], and prints what came of it by name: null, or why not.
"""

from __future__ import annotations

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

_CONNECT_S = 5.0
_AT_ONCE = 32
_LONGEST_NAME = 256


def listen(name: str) -> None:
    """Answer until ended."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    server = socket.create_server(
        ("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6, backlog=_LONGEST_NAME
    )
    print(server.getsockname()[1], flush=True)
    while True:
        connection = server.accept()[0]
        with connection:
            connection.sendall(name.encode())


def reach(name: str, address: str, port: int) -> str | None:
    """Connect to another host; None if it answers with the right name, else what went wrong."""
    try:
        with socket.create_connection((address, port), timeout=_CONNECT_S) as connection:
            heard = connection.recv(_LONGEST_NAME).decode(errors="replace")
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    return None if heard == name else f"{heard or 'nobody'} answers there"


def main(role: str, argument: str) -> None:
    """Play a role."""
    if role == "listen":
        listen(argument)
    others = json.loads(argument)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = {other[0]: pool.submit(reach, *other) for other in others}
    print(json.dumps({name: one.result() for name, one in found.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
