"""First process of a local network: all that lives in its namespaces ends with it, and it with its owner."""

import signal
import sys


def main() -> None:
    """Say that the namespaces are there, then wait until the owner is gone, which closes standard input."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans become its children; so they leave no zombies
    print("ready", flush=True)
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
