"""What is known of a training, as text and in a job."""

import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.jobs.parallelism import Parallelism
from dally.jobs.training_plan import PRECISIONS, TrainingPlan
from dally.scheduling.recording.plain import job_data, to_job
from dally.traces import JobCollector
from dally.traces.common_csv import read, write

PLAN = TrainingPlan.parse("tp=8,pp=4,dp=2,zero=1,micro=2,sequence=8192,precision=fp8")


JOB = Job("a", 0, 64, 9, batch=256, plan=PLAN)


def test_a_plan_is_read() -> None:
    plan = TrainingPlan(Parallelism(tp=8, pp=4, dp=2, zero=1), 8192, 2, "fp8")
    assert plan == PLAN
    assert (PLAN.gpus, PLAN.batch_step) == (64, 4)


@given(
    tp=st.integers(1, 8),
    dp=st.integers(1, 8),
    micro=st.integers(1, 10**9),
    sequence=st.integers(1, 10**9),
    precision=st.sampled_from(PRECISIONS),
)
def test_what_is_printed_reads_as_the_same_plan(
    tp: int, dp: int, micro: int, sequence: int, precision: str
) -> None:
    plan = TrainingPlan(Parallelism(tp=tp, dp=dp), sequence, micro, precision)
    assert TrainingPlan.parse(str(plan)) == plan


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp=8", "plan: 'tp=8' lacks the tokens of a sequence, as sequence=4096"),
        ("tp8", "plan: 'tp8' is not a part of a plan; valid: tp, pp, cp, dp, ep,"),
        ("batch=8,sequence=1", "order, micro, sequence, precision, as tp=8"),
        ("sequence=1,sequence=2", "plan: sequence is named twice"),
        ("sequence=long", "plan: sequence is 'long', must be a whole number"),
        ("sequence=0", "plan: sequence is 0, must be 1 to 1,000,000,000"),
        ("sequence=1,micro=0", "plan: micro is 0, must be 1"),
        ("sequence=1,precision=int4", "plan: precision is 'int4', must be one of bf16, fp8, fp4"),
        ("sequence=1,tp=0", "plan: tp is 0"),
    ],
)
def test_wrong_plans_are_told_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        TrainingPlan.parse(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": 8}, "job a: plan tp=8,pp=4,dp=2,zero=1,micro=2,sequence=8192,precision=fp8 has 64 GPUs"),
        ({"batch": None}, "job a: has a plan and no batch"),
        ({"batch": 6}, "job a: batch is 6, must be a multiple of the plan's micro x dp = 4"),
        ({"kind": JobKind.ELASTIC}, "job a: has a plan and is elastic, but only rigid jobs have one"),
        ({"kind": JobKind.FORKED}, "job a: has a plan and is forked"),
    ],
)
def test_a_plan_must_fit_its_job(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        replace(JOB, **changes)
    assert message in str(error.value)


def test_a_job_with_a_plan_is_written_and_read_back() -> None:
    job = replace(JOB, model="layers=2,hidden=64,heads=2,ffn=64,vocabulary=99")
    assert to_job(json.loads(json.dumps(job_data(job)))) == job
    text = StringIO(newline="")
    write([job, Job("b", 0, 1, 1)], text)
    collector = JobCollector("x")
    read(text.getvalue(), collector)
    assert collector.jobs == [job, Job("b", 0, 1, 1)]


def test_a_wrong_plan_in_a_trace_names_its_line() -> None:
    with pytest.raises(InputError) as error:
        read(
            'job_id,submit_s,gpus,duration_s,batch,plan\na,0,2,1,4,"tp=4,sequence=9"\n', JobCollector("x.csv")
        )
    assert str(error.value).startswith("x.csv, line 2: job a: plan tp=4,micro=1,sequence=9 has 4 GPUs")
