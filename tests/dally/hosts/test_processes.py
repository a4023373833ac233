"""Several processes run as one: what they print, how they fail, and that none outlives the others."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.hosts.local_process import LocalProcess
from dally.hosts.processes import Command, HeardLine, ProcessError, run_and_hear, run_together
from tests.dally.hosts.waits import await_gone, await_numbers
from tests.patience import LONGEST_S

TELL_PID = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
"""Python that adds its process id to the file named by its argument."""

SLEEP = "import time; time.sleep(1000)\n"
AWAIT = "import os, time\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)\n"
"""Python that waits for the file named by its second argument."""

DRIVER = """
import sys
from dally.hosts.local_process import LocalProcess
from dally.hosts.processes import Command, run_together
argv = (sys.executable, "-c", sys.argv[1], sys.argv[2])
run_together([Command("rank 0", argv), Command("rank 1", argv)], LocalProcess, print, 600)
"""


def python(name: str, script: str, *arguments: object) -> Command:
    """A command that runs some Python."""
    return Command(name, (sys.executable, "-c", script, *map(str, arguments)))


def heard(*commands: Command) -> list[str]:
    """The lines of commands that run together."""
    lines: list[str] = []
    run_together(commands, LocalProcess, lines.append, LONGEST_S)
    return lines


def failure(*commands: Command) -> ProcessError:
    """The error of commands that run together."""
    with pytest.raises(ProcessError) as caught:
        heard(*commands)
    return caught.value


def test_a_shown_command_does_the_same_in_a_shell() -> None:
    command = Command("x", ("printf", "%s|", "it's", "a $b", ""), {"SHOWN": 'two "words"'})
    line = f"{command.shown()}; {Command('y', ('env',), command.env).shown()}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=LONGEST_S, check=True)
    assert done.stdout.startswith("it's|a $b||")
    assert 'SHOWN=two "words"\n' in done.stdout


@given(
    argv=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1),
    value=st.text(st.characters(exclude_characters="\0", codec="utf-8")),
)
def test_a_shown_command_reads_back_as_its_variables_and_arguments(argv: Sequence[str], value: str) -> None:
    assert shlex.split(Command("x", tuple(argv), {"NAME": value}).shown()) == [f"NAME={value}", *argv]


def test_variables_are_set_besides_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER", "outer")
    script = "import os; print(os.environ['OUTER'], os.environ['RANK'])"
    assert heard(Command("x", (sys.executable, "-c", script), {"RANK": "7"})) == ["outer 7"]


def test_every_complete_line_is_heard_and_a_broken_off_one_is_not() -> None:
    assert heard(python("x", "print('one'); print('two'); print('thr', end='')")) == ["one", "two"]


def test_lines_of_standard_error_are_heard_with_the_command_that_wrote_them() -> None:
    heard: list[HeardLine] = []
    script = "import sys; print('out'); print('err', file=sys.stderr)"
    commands = [python(name, script) for name in ("x", "y")]
    run_and_hear(commands, LocalProcess, heard.append, LONGEST_S)
    said = sorted((line.command.name, line.on_stderr, line.text) for line in heard)
    assert said == [
        (name, error, text) for name in ("x", "y") for error, text in ((False, "out"), (True, "err"))
    ]


def test_a_carriage_return_ends_a_line_as_in_progress_bars() -> None:
    assert heard(python("x", "import sys; sys.stdout.buffer.write(b'1/2\\r2/2\\r\\n\\xe9 end\\n')")) == [
        "1/2",
        "2/2",
        "\ufffd end",
    ]


def test_output_of_any_size_does_not_block() -> None:
    flood = "import sys\nfor _ in range(5000): print('x' * 200); print('y' * 200, file=sys.stderr)"
    assert len(heard(python("x", flood), python("y", flood))) == 10_000


def test_the_error_is_the_last_line_that_the_failing_rank_wrote() -> None:
    error = failure(python("rank 0 on a", SLEEP), python("rank 1 on b", "print(flush=True); {}['no disk']"))
    assert str(error) == "rank 1 on b: KeyError: 'no disk'"
    assert error.last_lines[0].startswith("Traceback")


def test_a_rank_that_names_itself_is_not_named_twice() -> None:
    script = "import sys; sys.stderr.write('rank 1 on b: no GPU\\nbye\\n'); sys.exit(1)"
    assert str(failure(python("rank 1 on b", script))) == "rank 1 on b: no GPU"


def test_a_rank_that_says_nothing_is_reported_with_its_exit_status() -> None:
    assert str(failure(python("rank 0 on a", "raise SystemExit(3)"))) == "rank 0 on a: exit status 3"


def test_a_missing_program_is_named() -> None:
    assert "no-such-program" in str(failure(Command("rank 0 on a", ("no-such-program",))))


def test_a_killed_rank_is_named_with_its_signal_though_others_failed_before_it_ended(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    follower = (
        "import sys; print('rank 0 on a: connection reset', file=sys.stderr, flush=True)\n"
        "open(sys.argv[2], 'w'); sys.exit(1)"
    )
    killed = "import os, sys\n" + AWAIT + "os.kill(os.getpid(), 9)"
    error = failure(python("rank 0 on a", follower, "", mark), python("rank 1 on b", killed, "", mark))
    assert str(error) == "rank 1 on b: killed by SIGKILL"


def test_the_rank_that_complained_first_is_reported_though_another_one_exits_before_it(
    tmp_path: Path,
) -> None:
    mark, end = tmp_path / "mark", tmp_path / "end"
    # A moment passes between an error and its consequence, as between machines.
    follower = (
        "import sys\n" + AWAIT + "time.sleep(0.3); open(sys.argv[1], 'w')\n"
        "print('rank 0 on a: connection reset', file=sys.stderr); sys.exit(1)"
    )
    first = (
        "import os, sys, time; print('rank 1 on b: no memory', file=sys.stderr, flush=True)\n"
        "open(sys.argv[1], 'w')\n" + AWAIT + "time.sleep(0.3); sys.exit(1)"
    )
    error = failure(python("rank 0 on a", follower, end, mark), python("rank 1 on b", first, mark, end))
    assert str(error) == "rank 1 on b: no memory"


def test_when_one_fails_all_others_end_with_what_they_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    parent = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {TELL_PID + SLEEP!r}, sys.argv[1]])\n" + TELL_PID + SLEEP
    )
    bad = (
        "import sys, time\nfrom pathlib import Path\npids = Path(sys.argv[1])\n"
        "while not pids.exists() or len(pids.read_text().split()) < 2: time.sleep(0.01)\n"
        "sys.exit(1)"
    )
    failure(python("rank 0", parent, pids), python("rank 1", bad, pids))
    for pid in await_numbers(pids, 2):
        await_gone(pid)


def test_an_error_of_the_listener_ends_all(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def full(_: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_together(
            [python("x", TELL_PID + "print('a', flush=True)\n" + SLEEP, pids)], LocalProcess, full, LONGEST_S
        )
    await_gone(*await_numbers(pids, 1))


def test_what_takes_too_long_is_ended_and_named() -> None:
    started: list[LocalProcess] = []

    def start(command: Command) -> LocalProcess:
        started.append(LocalProcess(command))
        return started[-1]

    with pytest.raises(ProcessError, match=r"^rank 0 on a took longer than 0.5 s$"):
        run_together([python("rank 0 on a", SLEEP)], start, print, 0.5)
    assert started[0].wait() == 128 + signal.SIGTERM


def test_when_all_have_ended_nothing_is_left_open() -> None:
    kept: list[LocalProcess] = []

    def start(command: Command) -> LocalProcess:
        kept.append(LocalProcess(command))
        return kept[-1]

    before = len(os.listdir("/proc/self/fd"))
    run_together([python("x", "print(1)"), python("y", "print(2)")], start, lambda line: None, LONGEST_S)
    assert len(os.listdir("/proc/self/fd")) == before


def test_if_one_cannot_be_started_those_before_it_end() -> None:
    started: list[LocalProcess] = []

    def start(command: Command) -> LocalProcess:
        if started:
            raise ProcessError("no more")
        started.append(LocalProcess(command))
        return started[0]

    with pytest.raises(ProcessError, match="no more"):
        run_together([python("x", SLEEP), python("y", SLEEP)], start, print, LONGEST_S)
    assert started[0].wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_driver_is_ended_by_a_signal_its_ranks_end(number: signal.Signals, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    argv = [sys.executable, "-c", DRIVER, TELL_PID + SLEEP, str(pids)]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as driver:
        ranks = await_numbers(pids, 2)
        os.kill(driver.pid, number)
        driver.wait(LONGEST_S)
    for pid in ranks:
        await_gone(pid)


def test_without_setpriv_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "apt-get install util-linux" in str(failure(python("x", "")))
