"""Where models ran, by hand."""

from analysis.report.history import RunHistory
from analysis.report.tables import OTHER_MODELS, ModelPlacements, gpu_time_by_model, levels_by_model
from tests.analysis.report.folders import record, started


def test_gpu_time_is_of_gangs() -> None:
    jobs = [
        record(name, submit_s=0, queue_s=0, run_s=9, gpus=gpus, model="m")
        for name, gpus in (("a", 2), ("b", 1))
    ]
    history = RunHistory(["machine", "rack"], {"a": 0, "b": 1})
    history.add(started(0, "a", {"x": 1, "y": 1}, "rack"))
    history.add(started(0, "b", {"x": 1}))
    history.close(10)
    assert gpu_time_by_model(history, jobs) == {"m": [0.0, 20.0]}


def test_models_stand_by_gpu_time_and_the_smallest_together() -> None:
    runs = {"x": {f"model-{n}": [n + 1.0, n + 1.0] for n in range(15)}, "y": {"model-14": [1.0, 3.0]}}
    found = levels_by_model(runs, 2)
    assert [each.model for each in found] == [*(f"model-{n}" for n in range(14, 3, -1)), OTHER_MODELS]
    assert found[0] == ModelPlacements("model-14", {"x": [50.0, 50.0], "y": [25.0, 75.0]})
    assert found[-1] == ModelPlacements(OTHER_MODELS, {"x": [50.0, 50.0]})
