import pytest
import torch

from profiler.rank import clocks


class FakeEvent:
    """Like torch.cuda.Event: a moment in the GPU's stream, in milliseconds."""

    now_ms = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_ms = FakeEvent.now_ms

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at_ms - self.at_ms


def test_on_a_gpu_time_passes_as_its_stream_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_make_event", FakeEvent)
    clock = clocks.Clock(torch.device("cuda"))
    start = clock.mark()
    FakeEvent.now_ms = 250.0
    assert clock.mark().since(start) == 0.25
