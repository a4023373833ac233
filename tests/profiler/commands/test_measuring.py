import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.commands.measuring import measure_and_show
from profiler.commands.options import MeasurementSettings
from profiler.driver.store import MeasurementStore
from tests.profiler.driver.worlds import FakeLauncher, make_run


@pytest.fixture
def hangup_ignored() -> Iterator[None]:
    """As nohup starts a command."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def hangup_heard() -> Iterator[None]:
    """Even where the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def settings(out: Path) -> MeasurementSettings:
    return MeasurementSettings(
        out=out, dry_run=False, resume=False, timeout_s=60.0, backend=None, options=make_run().spec
    )


@pytest.mark.usefixtures("hangup_ignored")
def test_under_nohup_it_goes_on_when_the_terminal_goes(tmp_path: Path) -> None:
    measure_and_show([make_run()], FakeLauncher(then="kill -HUP $PPID"), settings(tmp_path / "out"))

    assert MeasurementStore(tmp_path / "out").complete("rack-2x1").exists()


@pytest.mark.usefixtures("hangup_heard")
@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_signal_ends_it_as_ctrl_c_does(tmp_path: Path, name: str) -> None:
    launcher = FakeLauncher({"rack-2x1": ()}, f"kill -{name} $PPID; exec sleep 1000")

    with pytest.raises(SystemExit) as ended:
        measure_and_show([make_run()], launcher, settings(tmp_path / "out"))

    assert ended.value.code == 130
    assert MeasurementStore(tmp_path / "out").partial("rack-2x1").exists()
