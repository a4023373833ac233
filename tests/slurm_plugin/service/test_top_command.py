"""`dally top`: once for scripts, and on a terminal while the controller goes and comes back."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from select import select

import pytest
from click.testing import CliRunner, Result

from dally import __version__
from dally.commands import main
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.service.server import Server
from tests.patience import LONGEST_S
from tests.slurm_plugin.answering import without_munge
from tests.slurm_plugin.daemons import DaemonSite
from tests.slurm_plugin.service.test_queue_command import busy

HOME, OTHER_SCREEN_ENDS = "\x1b[H", "\x1b[?1049l"
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def once(site: DaemonSite, width: int = 80) -> Result:
    results: list[Result] = []
    site.run(lambda: results.append(site.dally("top", "--once", width=width)))
    return results[0]


def test_once_shows_the_cluster_the_reasons_and_the_jobs(tmp_path: Path) -> None:
    result = once(busy(tmp_path))
    found = result.stdout.splitlines()
    assert (result.exit_code, found[0].startswith(f"dally {__version__}, normal mode, well ")) == (0, True)
    assert found[2].startswith("GPUs    32 of 32 used, 0 free, 0 unavailable, 4 nodes [####")
    assert found[3] == "free    at most 0 in one machine, 0 in one rack"
    assert found[4] == "jobs    1 running, 1 pending, 1 ineligible"
    assert "reasons 1 x no rack has 16 free GPUs" in found
    assert [line.split()[0] for line in found[-3:]] == ["2", "3", "1"]
    assert max(map(len, found)) <= 80


def test_a_shadow_is_not_well_and_exits_3(tmp_path: Path) -> None:
    site = busy(tmp_path)
    site.mode = ControllerMode(shadow=True)
    result = once(site)
    assert result.exit_code == 3
    assert "shadow mode, NOT WELL: shadow mode starts no jobs" in result.stdout


def run(folder: Path, url: str, *options: str) -> Result:
    (folder / "dally.toml").write_text(f'partitions = ["gpu"]\n{without_munge(folder)}url = "{url}"\n')
    return CliRunner().invoke(main, ["top", *options, "--config", str(folder / "dally.toml")])


def test_once_without_a_controller_is_one_line(tmp_path: Path) -> None:
    result = run(tmp_path, "http://127.0.0.1:9", "--once")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "dally: no controller answers at http://127.0.0.1:9: Connection refused\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "this is no terminal that can be drawn on again; use --once"),
        (("--every", "0"), "0.0 is not in the range x>=0.5"),
    ],
)
def test_what_cannot_be_watched_is_one_line(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    result = run(tmp_path, "http://127.0.0.1:9", *options)
    assert result.exit_code in (1, 2)
    assert said in result.stderr


class Terminal:
    """`dally top` on a terminal of 80 columns and 24 lines."""

    def __init__(self, config: Path) -> None:
        self._end, theirs = pty.openpty()
        argv = [sys.executable, "-m", "dally", "top", "--every", "0.5", "--config", str(config)]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        self.process = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        self.drawn = ""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)

    @property
    def first_line(self) -> str:
        """The first line of what was drawn last."""
        return STYLE.sub("", self.drawn.rpartition(HOME)[2]).partition("\r\n")[0]

    def await_line(self, begin: str) -> None:
        """Wait until the first line begins so."""
        until_s = time.monotonic() + LONGEST_S
        while not self.first_line.startswith(begin):
            assert time.monotonic() < until_s, f"{begin!r} is not in {self.drawn[-3000:]!r}"
            self.read(0.1)

    def read(self, longest_s: float) -> None:
        """Read what was drawn by now, or comes soon."""
        if select([self._end], [], [], longest_s)[0]:
            with suppress(OSError):  # nobody draws any more
                self.drawn += os.read(self._end, 65536).decode()

    def end(self) -> int:
        """End it as `kill` does; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(LONGEST_S)
        self.read(0.0)
        return status


def test_it_goes_on_while_the_controller_is_gone_and_puts_the_terminal_right(tmp_path: Path) -> None:
    site = busy(tmp_path)
    statuses: list[int] = []

    def watch() -> None:
        assert site.daemon is not None
        assert site.daemon.server is not None
        port = site.daemon.server.port
        site.configure(url=f"http://127.0.0.1:{port}")
        with Terminal(site.config) as terminal:
            terminal.await_line(f"dally {__version__}, normal mode, well ")
            site.daemon.server.stop()
            terminal.await_line(f"no controller answers at http://127.0.0.1:{port}: Connection refused")
            again = Server(f"127.0.0.1:{port}", site.daemon.pages)
            terminal.await_line(f"dally {__version__}, normal mode, well ")
            again.stop()
            statuses.append(terminal.end())
        assert OTHER_SCREEN_ENDS in terminal.drawn

    site.run(watch)
    assert statuses == [0]
