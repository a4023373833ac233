import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.rank.host_load import Load, LoadMeter, Spent, judge, loads_of, parse_stat

TICKS = os.sysconf("SC_CLK_TCK")
SECONDS = st.floats(0, 1e3)


def spent(own_s: float, busy_s: float, machine: str = "m1") -> Spent:
    return Spent(machine, f"host of {machine}", own_s, busy_s, 0.0, 10.0)


def test_the_first_line_of_proc_stat_is_read_in_seconds() -> None:
    text = "cpu  100 20 30 1000 50 7 8 9 3 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
    busy_s, steal_s, total_s = parse_stat(text)
    assert busy_s == pytest.approx(150 / TICKS)
    assert steal_s == pytest.approx(9 / TICKS)
    assert total_s == pytest.approx((150 + 1000 + 50 + 7 + 8 + 9) / TICKS)


def test_the_ranks_of_a_machine_are_not_foreign_to_each_other() -> None:
    (load,) = loads_of([spent(2.0, 5.0), spent(1.0, 5.0)])
    assert load.host == "host of m1"
    assert load.foreign == pytest.approx(0.2)


def test_every_machine_has_its_own_load() -> None:
    loads = loads_of([spent(5.0, 5.0, "m1"), spent(1.0, 5.0, "m2"), spent(0.0, 5.0, "m1")])
    assert [load.host for load in loads] == ["host of m1", "host of m2"]
    assert [load.foreign for load in loads] == pytest.approx([0.0, 0.4])


@given(st.lists(st.tuples(SECONDS, SECONDS, st.sampled_from("ab")), min_size=1))
def test_the_foreign_share_is_never_negative(ranks: list[tuple[float, float, str]]) -> None:
    loads = loads_of([spent(own_s, busy_s, machine) for own_s, busy_s, machine in ranks])
    assert all(load.foreign >= 0 for load in loads)


def test_quiet_machines_are_not_flagged() -> None:
    assert judge([Load("n1", 0.05, 0.0)], ("known",)).flags == ("known",)


def test_loads_are_flagged_by_machine_and_the_largest_shares_kept() -> None:
    quality = judge([Load("n1", 0.31, 0.0), Load("n2", 0.0, 0.06)], ())
    assert (quality.foreign_cpu_fraction, quality.steal) == (0.31, 0.06)
    assert quality.flags == (
        "others used 31 % of the CPUs of n1",
        "the hypervisor took 6 % of the CPUs of n2",
    )


def test_a_meter_counts_own_work_as_own() -> None:
    meter = LoadMeter("m1", "n1", ())
    until_s = meter.spent().own_s + 0.2
    while meter.spent().own_s < until_s:
        pass
    seen = meter.spent()
    assert seen.own_s >= 0.2
    assert seen.total_s > 0


def test_the_work_of_a_child_counts_as_own() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            meter = LoadMeter("m1", "n1", (child.pid,))
            wait_for_cpu(child.pid, 0.3)
            assert meter.spent().own_s > 0.2
        finally:
            child.kill()


def test_a_child_that_is_gone_counts_no_more() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    assert LoadMeter("m1", "n1", (child.pid,)).spent().own_s >= 0


def wait_for_cpu(pid: int, wanted_s: float) -> None:
    """Wait until a process has worked so long, by a clock of its own (clock_getcpuclockid(3))."""
    while time.clock_gettime((~pid << 3) | 2) < wanted_s:
        time.sleep(0.01)
