"""Waiting for what other processes do; ends in a failure when it never happens."""

from pathlib import Path

from tests.patience import wait_until


def is_gone(pid: int) -> bool:
    """Whether a process has ended; its parent may not have noticed yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def await_gone(pid: int) -> None:
    """Wait until a process has ended."""
    wait_until(lambda: is_gone(pid), f"process {pid} to end")


def await_numbers(path: Path, count: int) -> list[int]:
    """Wait until a file has so many lines, each a whole number."""
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count, f"{count} lines in {path}")
    return [int(line) for line in path.read_text().split()]
