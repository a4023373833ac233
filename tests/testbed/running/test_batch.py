"""What a user orders is checked as a whole, and the workloads that come with Dally can be run."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.profiles.files import write_profiles
from dally.profiles.schema import ProfileMode
from dally.traces import load_trace
from testbed.running import batch as batches
from testbed.running.batch import EMULATED_TFLOPS, RunRequest, named_workloads, plan_batch
from tests.testbed.running.worlds import COMPUTE_S, profile, topology, typed, write_profile_folder
from workloads.registry import WORKLOADS

CSV = "job_id,submit_s,gpus,duration_s,user,group,model,status\na,0,2,5,u,g,mobilenetv3,\nb,4,1,5,u,g,,\n"


@pytest.fixture
def asked(tmp_path: Path) -> RunRequest:
    (tmp_path / "trace.csv").write_text(CSV)
    return RunRequest(
        str(tmp_path / "trace.csv"), write_profile_folder(tmp_path / "profiles"), model_mix="mobilenetv3=1"
    )


def test_a_workload_is_scaled_and_its_jobs_get_models(asked: RunRequest, tmp_path: Path) -> None:
    batch = plan_batch(replace(asked, scale=0.5, duration_scale=2.0), topology(), tmp_path)
    a, b = batch.inputs.plans
    assert (a.steps, b.job.submit_s, b.job.model) == (80, 2.0, "mobilenetv3")
    assert (batch.state.emulate_tflops, batch.state.backend) == ({"h100": EMULATED_TFLOPS}, "gloo")
    assert batch.longest_s > 600


def test_gpus_of_other_speeds_get_profiles_of_their_own(asked: RunRequest, tmp_path: Path) -> None:
    speeds = {"v100": 2.0, "k80": 0.5}
    batch = plan_batch(replace(asked, emulate=speeds), typed(r1="v100", r2="k80"), tmp_path)
    assert batch.state.emulate_tflops == speeds
    found = {each.env.gpu_type: each.compute.total_s for each in batch.inputs.profiles.profiles}
    assert found == pytest.approx({"v100": COMPUTE_S / 2, "k80": COMPUTE_S * 2})


def test_measured_profiles_are_run_for_real(asked: RunRequest, tmp_path: Path) -> None:
    own = profile()
    real = replace(own, provenance=replace(own.provenance, mode=ProfileMode.NCCL))
    write_profiles([real], tmp_path / "real")
    asked = replace(asked, profiles=str(tmp_path / "real"))
    batch = plan_batch(asked, topology(), tmp_path)
    assert (batch.state.emulate_tflops, batch.state.backend) == (None, "nccl")
    with pytest.raises(InputError, match="--emulate needs profiles that are emulated"):
        plan_batch(replace(asked, emulate=60.0), topology(), tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scale": -1.0}, "scale is -1"),
        ({"duration_scale": 0.0}, "duration scale is 0"),
        ({"emulate": 0.0}, "--emulate is 0"),
        ({"emulate": {"k80": 1.0}}, "--emulate names k80; the cluster has GPUs of h100"),
        ({"model_mix": None}, "job b names no model"),
        ({"companions": 2}, "name their samples with --data"),
        ({"workload": "nowhere.csv"}, "no trace file 'nowhere.csv'"),
    ],
)
def test_a_wrong_request_is_refused(
    asked: RunRequest, tmp_path: Path, changed: dict[str, object], message: str
) -> None:
    values = {**{name: getattr(asked, name) for name in RunRequest.__slots__}, **changed}
    with pytest.raises(InputError, match=message):
        plan_batch(RunRequest(**values), topology(), tmp_path)


def test_the_workloads_that_come_with_dally_can_be_run_on_their_clusters() -> None:
    sizes = {"demo": (8, 12), "burst": (16, 16), "steady": (16, 16), "waves": (16, 18), "forty": (16, 40)}
    sizes |= {"calm": (16, 18), "elastic": (8, 6), "mixed": (16, 30), "limits": (16, 20)}
    assert set(named_workloads()) == set(sizes)
    for name, (gpus, jobs) in sizes.items():
        path = Path(batches.__file__).parent / "workloads" / f"{name}.csv"
        found = load_trace(path).jobs
        assert len(found) == jobs
        assert all(job.model in WORKLOADS and job.gpus <= gpus for job in found)


def test_forty_has_five_models_and_gangs_of_all_sizes() -> None:
    found = load_trace(Path(batches.__file__).parent / "workloads" / "forty.csv").jobs
    assert len(Counter(job.model for job in found)) >= 5
    assert {job.gpus for job in found} == {1, 2, 4, 8}
    assert max(job.submit_s for job in found) <= 300
