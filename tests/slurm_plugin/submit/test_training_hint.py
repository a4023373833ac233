"""What `dally-sbatch` tells Dally of a job's plan, and what it tells its user."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from dally.errors import InputError
from slurm_plugin.config import Config
from slurm_plugin.request import Request
from slurm_plugin.submit.advice import advice
from slurm_plugin.submit.submission import build_request, read_submission
from slurm_plugin.submit.training_hint import asked_gpus, with_plan

MEGATRON = """\
#!/bin/sh
#SBATCH --nodes=8 --gpus-per-node=8
torchrun pretrain.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 \\
    --global-batch-size 256 --seq-length 8192
"""
READ = "tp=8,pp=4,micro=1,sequence=8192"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def submit(
    line: str, script: str = "#!/bin/sh\n", variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[Request, tuple[str, ...]]:
    Path("job.sh").write_text(script)
    submission = read_submission(line.split(), variables, script.encode, dict)
    return with_plan(build_request(submission, "1f"), submission, variables)


def test_a_plan_that_is_said_is_told() -> None:
    request, notes = submit(
        "--gpus=64 --model=llama3-70b --parallel=tp=8,pp=4,sequence=4096 --global-batch=128 job.sh"
    )
    assert (request.plan, request.batch, notes) == ("tp=8,pp=4,sequence=4096", 128, ())


def test_a_plain_command_line_is_read_and_that_is_said() -> None:
    request, (note,) = submit("--model=llama3-70b job.sh", MEGATRON)
    assert (request.plan, request.batch, request.model) == (READ, 256, "llama3-70b")
    assert note == (
        f"note: plan {READ} and batch 256 are read from the command line; "
        "--parallel and --global-batch override"
    )


def test_a_default_counts_unless_the_environment_has_another_value_or_does_not_reach_the_job() -> None:
    script = MEGATRON.replace("torchrun", "TP=${TP:-8}\ntorchrun").replace("size 8", "size $TP")
    wide, _ = submit("--model=llama3-70b job.sh", script)
    narrow, _ = submit("--model=llama3-70b job.sh", script, {"TP": "4"})
    assert (wide.plan, narrow.plan) == (READ, READ.replace("tp=8", "tp=4"))
    for line, variables in (("--export=NONE", {}), ("", {"SBATCH_EXPORT": "TP=2"})):
        request, (note,) = submit(f"--model=llama3-70b {line} job.sh", script, variables)
        assert request.plan == ""
        assert "tensor-model-parallel-size is $TP" in note


def test_of_a_plan_for_other_gpus_nothing_is_said_of_its_batch() -> None:
    with pytest.raises(InputError, match=r"needs 16 GPUs, not 8$"):
        submit("--gpus=8 --model=llama3-70b --parallel=tp=8,pp=2,sequence=4096 --global-batch=64 job.sh")


def test_what_the_user_says_goes_first() -> None:
    request, _ = submit("--model=llama3-70b --parallel=pp=2,zero=1 --global-batch=64 job.sh", MEGATRON)
    assert (request.plan, request.batch) == ("tp=8,pp=2,micro=1,sequence=8192,zero=1", 64)


def test_arguments_of_the_script_count_as_its_text() -> None:
    request, _ = submit(
        "--gpus=8 --model=llama3-8b job.sh --tensor-model-parallel-size 8 --seq-length 2048"
        " --global-batch-size 8"
    )
    assert (request.plan, request.batch) == ("tp=8,sequence=2048", 8)


def test_the_model_may_be_spelled_out_by_the_script() -> None:
    shape = "--num-layers 2 --hidden-size 64 --num-attention-heads 8 --vocab-size 99"
    request, _ = submit("job.sh", MEGATRON.replace("--seq-length", f"{shape} --seq-length"))
    assert request.model == "layers=2,hidden=64,heads=8,ffn=256,vocabulary=99,gated=0,tied=1"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--parallel=tp=8 --global-batch=8 job.sh", "plan: 'tp=8' lacks the tokens of a sequence"),
        (
            "--parallel=tp=8,sequence=9 job.sh",
            "a plan needs the sequences of a step on all GPUs (--global-batch=N)",
        ),
        (
            "--global-batch=8 job.sh",
            "no plan is read from the command line: it names none; say it with --model and --parallel",
        ),
        ("--parallel=xp=8 job.sh", "plan: 'xp=8' is not a part of a plan; valid: tp, pp"),
        ("--parallel=zero=9,sequence=9 --global-batch=8 job.sh", "plan: zero is 9, must be 0 to 3"),
        (
            "--gpus=12 --parallel=tp=8,sequence=9 --global-batch=8 job.sh",
            "plan tp=8,micro=1,sequence=9 needs 8 GPUs",
        ),
        (
            "--gpus=16 --parallel=dp=16,sequence=9 --global-batch=8 job.sh",
            "needs a batch of a multiple of 16 sequences, not 8",
        ),
    ],
)
def test_what_is_said_wrongly_is_refused_in_a_line(line: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        submit(line)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("model", ["llama3-70b", "resnet50"])
def test_a_plan_that_cannot_be_read_is_said_where_it_would_count(model: str) -> None:
    request, notes = submit(f"--model={model} job.sh", MEGATRON.replace(" 8 ", " $TP "))
    assert not request.plan
    assert notes == (
        (
            "note: no plan is read from the command line: tensor-model-parallel-size is $TP; "
            "say it with --parallel, or Dally can only guess what distance costs it",
        )
        if model == "llama3-70b"
        else ()
    )


def test_a_plan_that_cannot_be_read_is_said_of_a_job_without_a_model() -> None:
    _, (note,) = submit("job.sh", MEGATRON.replace(" 8 ", " $TP "))
    assert "tensor-model-parallel-size is $TP; say it with --model and --parallel, or Dally can" in note


def test_why_the_script_adds_nothing_to_a_plan_is_told_where_that_plan_lacks_something() -> None:
    with pytest.raises(
        InputError, match=r"lacks the tokens .*; of the command line nothing is read: tensor-"
    ):
        submit("--global-batch=256 --parallel=tp=8 job.sh", MEGATRON.replace(" 8 ", " $TP "))


def test_a_plan_that_lacks_its_batch_only_asks_for_that() -> None:
    script = MEGATRON.replace("--global-batch-size 256", "")
    request, (note,) = submit("--model=llama3-70b job.sh", script)
    assert not request.plan
    assert "(--global-batch=N); say it with --global-batch, or Dally can" in note
    assert submit("--model=llama3-70b --global-batch=256 job.sh", script)[0].plan == READ


def test_a_plan_without_a_known_transformer_is_told_to_be_useless() -> None:
    _, notes = submit("--model=resnet50 job.sh", MEGATRON)
    assert (
        notes[-1]
        == "note: model resnet50 is not a transformer that Dally knows, so its plan counts for nothing"
    )


@pytest.mark.parametrize(
    ("line", "script", "told"),
    [
        ("job.sh", MEGATRON, f"{READ} and batch 256 are read from the command line"),
        ("--parallel=tp=8,sequence=9 --global-batch=8 job.sh", "", "tp=8,sequence=9 and batch 8"),
    ],
)
def test_one_line_tells_of_a_plan_without_a_model(line: str, script: str, told: str) -> None:
    request, (note,) = submit(line, script)
    assert note.startswith(f"note: plan {told}, but no --model names a transformer; without one, Dally can")
    assert list(advice(request, script, Config(partitions=("gpu",)), is_told=True)) == []


def test_a_name_close_to_a_transformers_is_asked_about() -> None:
    _, (note,) = submit("--model=Llama-3-70B --parallel=tp=8,sequence=9 --global-batch=8 job.sh")
    assert note.endswith("so its plan counts for nothing; did you mean llama3-70b?")


@pytest.mark.parametrize(
    ("line", "limits"),
    [
        ("--gpus-per-node=4 --min-gpus=8 job.sh", "4 GPUs, outside of --min-gpus=8"),
        (
            "-N2 --gpus-per-node=8 --min-gpus=2 --max-gpus=8 job.sh",
            "16 GPUs, outside of --min-gpus=2 and --max-gpus=8",
        ),
    ],
)
def test_a_range_without_the_usual_size_is_refused(line: str, limits: str) -> None:
    with pytest.raises(InputError, match=f"^the job asks sbatch for {limits}$"):
        submit(line)


def test_jobs_without_a_plan_are_told_nothing() -> None:
    assert submit("--model=resnet50 job.sh") == (Request(model="resnet50", tag="1f"), ())


@pytest.mark.parametrize(
    ("settings", "gpus"),
    [
        ({"gpus": "8"}, 8),
        ({"gpus": "h100:16"}, 16),
        ({"gpus-per-node": "8", "nodes": "4"}, 32),
        ({"gres": "gpu:h100:4", "nodes": "2"}, 8),
        ({"gres": "gpu:4"}, 4),
        ({"gpus-per-task": "1", "ntasks": "6"}, 6),
        ({"gpus-per-task": "1"}, 1),
        ({"gpus-per-task": "2", "nodes": "3", "ntasks-per-node": "4"}, 24),
        ({"gpus-per-task": "1", "nodes": "2-4"}, None),
        ({"gpus-per-task": "1", "ntasks": "6", "nodes": "2-4"}, 6),
        ({"gpus-per-node": "8", "nodes": "2-4"}, None),
        ({"gpus-per-node": "8", "nodes": "2-2"}, 16),
        ({"gpus-per-node": "8", "nodes": "2-"}, None),
        ({"gpus": "8", "gpus-per-node": "4", "nodes": "2"}, 8),
        ({"gres": "gpu:8", "ntasks": "20", "ntasks-per-node": "8"}, 24),
        ({"gres": "nvme:1,gres/gpu:a100:4,bandwidth:2", "nodes": "2"}, 8),
        ({"gres": "gpu"}, 1),
        ({"gres": "gpu:a100", "nodes": "2"}, 2),
        ({"gres": "gpumem:4"}, None),
        ({"gres": "gpu:a100:2,gpu:v100:2"}, None),
        ({"gpus": "a100"}, 1),
        ({"gres": "gpu:1g.10gb:1"}, 1),
        ({"gpus-per-node": "1g.10gb", "nodes": "2"}, 2),
        ({"gpus": "a100:2,v100:1"}, None),
        ({}, None),
    ],
)
def test_gpus_are_counted_where_the_options_fix_them(settings: Mapping[str, str], gpus: int | None) -> None:
    assert asked_gpus(settings) == gpus


@pytest.mark.parametrize(
    "options",
    [
        "--pipeline-model-parallel-size 0 --num-layers 32 --num-layers-per-virtual-pipeline-stage 2",
        "--num-layers 32 --num-layers-per-virtual-pipeline-stage 0",
        "--global-batch-size 9999999999",
        "--global-batch-size -4",
        "--seq-length -1 --global-batch-size 8",
        "--tensor-model-parallel-size 0",
    ],
)
def test_numbers_of_a_script_that_cannot_be_keep_no_job_from_being_submitted(options: str) -> None:
    script = f"#!/bin/sh\ntorchrun x.py --tensor-model-parallel-size 8 {options}"
    if "--seq-length" not in options:
        script += " --seq-length 2048"
    request, (note,) = submit("--model=llama3-8b --gpus=8 job.sh", script)
    assert (request.plan, request.batch) == ("", 0)
    assert note.startswith("note: no plan is read from the command line: ")


def test_torchtitans_file_with_a_degree_of_0_is_not_read() -> None:
    request, (note,) = submit(
        "--model=llama3-8b --gpus=8 job.sh",
        "x --parallelism.tensor_parallel_degree=0 --training.local_batch_size 4",
    )
    assert request.plan == ""
    assert "parallelism.tensor_parallel_degree is 0" in note


def test_deepspeeds_file_may_be_nested_without_end() -> None:
    Path("deep.json").write_text("[" * 100_000)
    request, (note,) = submit("--model=llama3-8b --gpus=8 job.sh", "x --deepspeed deep.json")
    assert request.plan == ""
    assert "deep.json cannot be read" in note
