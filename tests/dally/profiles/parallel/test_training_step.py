"""What must hold of a step's time, whatever the constants."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.jobs.parallelism import Parallelism
from dally.profiles.parallel.gpu_specs import GPUS, GpuSpec, gpu_spec
from dally.profiles.parallel.rank_groups import whole_machines
from dally.profiles.parallel.step_constants import USUAL
from dally.profiles.parallel.training_step import BatchSizes, TrainingStep
from dally.profiles.parallel.transformer import MODELS, Transformer, gpt

SMALL = gpt(24, 2048, 16)
BATCH = BatchSizes(global_batch=64, micro_batch=1, sequence=2048)
POWERS = st.sampled_from([1, 2, 4, 8])


def step(plan: str, model: Transformer = SMALL, batch: BatchSizes = BATCH, gpu: str = "h100") -> TrainingStep:
    parsed = Parallelism.parse(plan)
    machines = whole_machines(parsed.gpus, GPUS[gpu].domain_gpus)
    return TrainingStep(model, parsed, batch, GPUS[gpu], machines)


def phases(each: TrainingStep) -> dict[str, float]:
    return {phase.name: phase.seconds for phase in each.phases(USUAL)}


@given(tp=POWERS, pp=POWERS, dp=POWERS, zero=st.integers(0, 3), vp=st.sampled_from([1, 2]))
def test_phases_add_up_and_no_axis_of_one_rank_has_one(tp: int, pp: int, dp: int, zero: int, vp: int) -> None:
    plan = Parallelism(tp=tp, pp=pp, dp=dp, zero=zero, vp=vp if pp > 1 else 1)
    each = step(str(plan))
    parts = phases(each)
    assert sum(parts.values()) == pytest.approx(each.seconds(USUAL))
    assert min(parts.values()) >= 0
    assert {"tp": tp > 1, "pp": pp > 1, "dp": dp > 1} == {axis: axis in parts for axis in ("tp", "pp", "dp")}


def test_compute_is_the_flops_over_the_rate_that_they_reach() -> None:
    model = gpt(layers=100, hidden=16_384, heads=128, vocabulary=1)
    batch = BatchSizes(global_batch=4, micro_batch=1, sequence=1)
    ideal = GpuSpec(1e15, 1e30, 1e12, 1e12)
    alone = TrainingStep(model, Parallelism(), batch, ideal, (1,))
    constants = replace(USUAL, matmul=0.5, narrow=1e-9, launch_s=1e-12)
    assert alone.seconds(constants) == pytest.approx(6 * model.parameters * 4 / 0.5e15, rel=1e-3)


def test_recomputing_costs_a_third_more_compute() -> None:
    long = BatchSizes(64, 8, 2048)
    plain, again = (phases(step(plan, batch=long)) for plan in ("dp=8", "dp=8,recompute=yes"))
    assert again["compute"] / plain["compute"] == pytest.approx(4 / 3, rel=0.1)


def test_the_bubble_is_one_microbatch_for_each_other_stage_and_smaller_in_chunks() -> None:
    model = gpt(24, 2048, 16, vocabulary=1)
    plain, chunks = (phases(step(plan, model)) for plan in ("pp=4", "pp=4,vp=2"))
    busy_s = plain["compute"] + plain["pp"]
    assert plain["bubble"] / busy_s == pytest.approx(3 / 64, rel=0.01)
    assert chunks["bubble"] == pytest.approx(plain["bubble"] / 2, rel=0.1)


def test_the_fullest_stage_sets_the_pace() -> None:
    even, uneven = (step(f"pp=2,stages={stages}").seconds(USUAL) for stages in ("12-12", "18-6"))
    assert 1.2 < uneven / even < 1.5


@pytest.mark.parametrize(("plan", "axis"), [("tp=8", "tp"), ("dp=8", "dp"), ("pp=8", "pp")])
def test_an_axis_over_machines_costs_more_than_inside_one(plan: str, axis: str) -> None:
    inside = step(plan)
    across = replace(inside, machines=(1,) * 8)
    assert phases(across)[axis] > phases(inside)[axis]


def test_tokens_go_over_the_network_once_for_all_experts_of_a_machine() -> None:
    model, batch = MODELS["qwen3-30b-a3b"], BatchSizes(64, 1, 4096)
    inside, across = (replace(step("dp=8,ep=8", model, batch), machines=each) for each in ((8,), (4, 4)))
    flat = replace(model, top_k=1)
    assert phases(across)["ep"] > phases(inside)["ep"]
    one = phases(replace(across, model=flat))["ep"]
    assert phases(across)["ep"] < 2.5 * one, "eight choices are two machines"


def test_sharding_weights_sends_more_the_more_microbatches_there_are() -> None:
    starved = replace(GPUS["h100"], network_bytes_per_s=1e8)
    few, many = (
        phases(replace(step("dp=16,zero=3", batch=batch), gpu=starved))["dp"]
        for batch in (BatchSizes(64, 4, 512), BatchSizes(64, 1, 512))
    )
    assert many / few == pytest.approx(4, rel=0.1)


def test_experts_that_every_rank_holds_alone_are_not_reduced() -> None:
    model, batch = MODELS["qwen3-30b-a3b"], BatchSizes(64, 1, 4096)
    slow = replace(GPUS["h100"], domain_bytes_per_s=1e9)
    alone, shared = (
        phases(replace(step(plan, model, batch), gpu=slow))["dp"] for plan in ("dp=8,ep=8", "dp=8,ep=4")
    )
    assert shared > 3 * alone


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("dp=3", "batch: 64 is no multiple of micro batch 1 x dp 3"),
        ("pp=25", "plan: pp is 25, more than the model's 24 layers"),
        ("tp=64", "plan: tp is 64, more than the model's [0-9]+ heads"),
        ("dp=8,ep=8", "plan: ep is 8, more than the model's 0 experts"),
        ("pp=2,stages=12-13", "plan: stages have 25 layers, the model has 24"),
    ],
)
def test_plans_that_do_not_fit_the_job_are_refused(plan: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        step(plan)


def test_unknown_types_and_precisions_are_named_with_the_valid_ones() -> None:
    with pytest.raises(InputError, match="GPU type 'k80' is not known; valid: a100, h100"):
        gpu_spec("k80")
    with pytest.raises(InputError, match="precision 'fp2' is not known; valid: bf16, fp8, fp4"):
        replace(step("dp=1"), precision="fp2")
    with pytest.raises(InputError, match="batch: sequence is 0, must be 1 to"):
        BatchSizes(1, 1, 0)
