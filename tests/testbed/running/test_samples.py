"""Samples of links, CPUs and GPUs, a line each."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from profiler.rank.nvml import Nvml
from testbed.running.gpu_counters import counters
from testbed.running.json_lines import append_line, read_lines
from testbed.running.report import busy_p95
from testbed.running.samples import GPU, MACHINE, TRAFFIC, RunSampler, cpu_ticks, memory_used
from tests.testbed.running import fakes
from tests.testbed.running.fakes import FakeTestbedCluster


def test_a_sample_has_the_links_and_the_cpus_share_since_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = RunSampler(FakeTestbedCluster(tmp_path), tmp_path, 100.0, lambda: 107.5)
    sampler.take()
    monkeypatch.setattr(fakes, "PROC", fakes.PROC.replace("100 0 100 700", "160 0 100 740"))
    sampler.take()
    assert read_lines(tmp_path / TRAFFIC)[0] == {"t": 7.5, "links": {"r1": [1, 2]}}
    assert read_lines(tmp_path / MACHINE) == [{"t": 7.5, "cpu_busy": 0.6, "memory_used_bytes": 614_400}]


def test_a_machine_without_gpus_says_why_once(tmp_path: Path) -> None:
    sampler = RunSampler(FakeTestbedCluster(tmp_path), tmp_path, 100.0)
    sampler.take()
    sampler.take()
    lines = read_lines(tmp_path / GPU)
    if lines[0]["gpus"] is None:
        assert len(lines) == 1
        assert lines[0]["reason"]


def refuse(handle: object) -> None:
    raise OSError("not supported")


ONE_GPU = SimpleNamespace(
    NVMLError=OSError,
    nvmlInit=lambda: None,
    nvmlDeviceGetCount=lambda: 1,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=25),
    nvmlDeviceGetMemoryInfo=refuse,
)


def test_a_counter_that_a_gpu_lacks_is_null() -> None:
    assert counters(Nvml(ONE_GPU)) == [{"utilisation": 0.25, "memory_used_bytes": None}]


def test_interrupts_and_stolen_time_count_as_busy() -> None:
    assert cpu_ticks("cpu 1 2 3 50 10 4 5 6 0 0\nintr 5\n") == (19, 81)


def test_memory_in_use_is_what_is_not_available() -> None:
    assert memory_used("MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: 30 kB\n") == 70 * 1024


def test_headroom_is_told_by_the_95th_percentile(tmp_path: Path) -> None:
    assert busy_p95(tmp_path) is None
    for share in range(101):
        append_line(tmp_path / MACHINE, t=share, cpu_busy=share / 100)
    assert busy_p95(tmp_path) == pytest.approx(0.95)


def test_a_line_after_one_that_was_cut_off_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, a=1)
    with path.open("a") as file:
        file.write('{"a": 2')
    append_line(path, a=3)
    assert [line["a"] for line in read_lines(path)] == [1, 3]
