"""Plans read from the command lines of trainers, and plans that are not guessed."""

import pytest

from slurm_plugin.submit.command_plan import CommandPlan, read_command

FILES = {
    "titan.toml": "[parallelism]\ntensor_parallel_degree = 8\ndata_parallel_shard_degree = -1\n"
    "[training]\nlocal_batch_size = 2\nseq_len = 8192\n[model]\nname = 'llama3'\nflavor = '70B'\n",
    "hsdp.toml": "[parallelism]\ndata_parallel_replicate_degree = 2\n",
    "broken.toml": "[parallelism\n",
    "ds.json": '{"zero_optimization": {"stage": 3}, "train_batch_size": 64, '
    '"train_micro_batch_size_per_gpu": 2}',
    "micro.json": '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": 2, '
    '"gradient_accumulation_steps": 4}',
    "auto.json": '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}',
}

MEGATRON = """\
#!/bin/bash
#SBATCH --nodes=8 --gpus-per-node=8
TP=8
export PP=4
MODEL_ARGS=(
    --num-layers 80 --hidden-size 8192  # --num-layers 96
    --num-attention-heads 64 --ffn-hidden-size 28672 --vocab-size 128256
    --group-query-attention --num-query-groups 8
    --swiglu --untie-embeddings-and-output-weights
)
srun torchrun pretrain_gpt.py "${MODEL_ARGS[@]}" --seq-length=8192 \\
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\
    --num-layers-per-virtual-pipeline-stage 4 --micro-batch-size 1 --global-batch-size 256 \\
    --use-distributed-optimizer --fp8-format hybrid --recompute-granularity selective
"""


def read(script: str, gpus: int | None = None) -> CommandPlan:
    found = read_command(script, FILES.get, gpus)
    assert found is not None
    return found


def test_megatron_tells_plan_batch_and_the_shape_of_its_model() -> None:
    found = read(MEGATRON)
    assert found.plan == {
        "tp": "8", "pp": "4", "vp": "5", "zero": "1", "micro": "1", "sequence": "8192", "precision": "fp8",
    }  # fmt: skip
    assert found.batch == 256
    assert found.model == (
        "layers=80,hidden=8192,heads=64,ffn=28672,vocabulary=128256,kv_heads=8,gated=1,tied=0"
    )


@pytest.mark.parametrize(
    ("options", "zero"),
    [
        ("--use-torch-fsdp2", "3"),
        ("--use-custom-fsdp --data-parallel-sharding-strategy optim_grads", "2"),
        ("--deepspeed_config $config --zero-stage 1", "1"),
    ],
)
def test_megatron_s_ways_to_shard_are_read(options: str, zero: str) -> None:
    assert read(f"x --tensor-model-parallel-size 2 {options}").plan == {"tp": "2", "zero": zero}


@pytest.mark.parametrize(
    ("script", "tp"),
    [
        ('TP="${TP:-8}"\nx --tensor-model-parallel-size $TP', "8"),
        ("x --tensor-model-parallel-size ${TP:-8}", "8"),
        ("TP=4\nx --tensor-model-parallel-size ${TP:-8}", "4"),
        ("x --tensor-model-parallel-size ${PARALLEL:-8}", "2"),
    ],
)
def test_a_default_is_plain(script: str, tp: str) -> None:
    found = read_command(script, FILES.get, variables={"PARALLEL": "2"})
    assert found is not None
    assert found.plan == {"tp": tp}


def test_a_default_of_an_argument_or_beside_another_value_is_not() -> None:
    for script in ("TP=${1:-8}", "TP=4\nTP=${TP:-8}"):
        found = read_command(f"{script}\nx --tensor-model-parallel-size $TP", FILES.get, variables={})
        assert found == CommandPlan(problem="tensor-model-parallel-size is $TP")


def test_a_file_in_a_folder_may_be_named_by_a_variable() -> None:
    files = {"./a/titan.toml": FILES["titan.toml"]}
    found = read_command('CONFIG="./a/titan.toml"\nx --job.config_file ${CONFIG}', files.get)
    assert found is not None
    assert found.plan["tp"] == "8"


def test_experts_and_other_options_of_megatron_are_read() -> None:
    found = read(
        "x --tensor-model-parallel-size 2 --expert-model-parallel-size 8 --context-parallel-size 2"
        " --num-virtual-stages-per-pipeline-rank 2 --pipeline-model-parallel-size 2"
        " --recompute-granularity full --use-tp-pp-dp-mapping --num-experts 64 --moe-ffn-hidden-size 512"
        " --num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000"
    )
    assert found.plan == {
        "tp": "2", "pp": "2", "cp": "2", "ep": "8", "vp": "2", "recompute": "yes", "order": "tp-cp-pp-dp",
    }  # fmt: skip
    assert (
        found.model == "layers=4,hidden=512,heads=8,ffn=512,vocabulary=1000,experts=64,top_k=2,gated=0,tied=1"
    )


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("x --tensor-model-parallel-size $TP", "tensor-model-parallel-size is $TP"),
        ("TP=4\n((TP*=2))\nx --tensor-model-parallel-size $TP", "tensor-model-parallel-size is $TP"),
        ("TP=4\nTP=8\nx --tensor-model-parallel-size $TP", "tensor-model-parallel-size is $TP"),
        ("if big; then\n  TP=8\nfi\nx --tensor-model-parallel-size $TP", "tensor-model-parallel-size is $TP"),
        ("for TP in 1 2; do\nx --tensor-model-parallel-size $TP\ndone", "tensor-model-parallel-size is $TP"),
        ("TP=$1\nx --tensor-model-parallel-size $TP", "tensor-model-parallel-size is $TP"),
        ("x --tensor-model-parallel-size ${TP:-8}", "tensor-model-parallel-size is ${TP:-8}"),
        ("x --tensor-model-parallel-size $((2*4))", "tensor-model-parallel-size is $((2*4))"),
        (
            "x --tensor-model-parallel-size 4\ny --tensor-model-parallel-size 8",
            "tensor-model-parallel-size is given as 4 and as 8",
        ),
        ("x --tensor-model-parallel-size many", "tensor-model-parallel-size is many"),
        ("x --job.config_file lost.toml", "lost.toml cannot be read"),
        ("x --job.config_file broken.toml", "broken.toml cannot be read"),
        ("x --job.config_file hsdp.toml", "parallelism.data_parallel_replicate_degree is 2"),
        ("x --deepspeed_config lost.json", "lost.json cannot be read"),
        ("x --pipe-parallel-size 4 --deepspeed_config ds.json", "pipe_parallel_size is 4, and of DeepSpeed"),
        (
            "x model.tensor_model_parallel_size=8",
            "pipeline_model_parallel_size is left to NeMo's configuration",
        ),
    ],
)
def test_nothing_is_guessed(script: str, problem: str) -> None:
    found = read(script)
    assert found.problem.startswith(problem)
    assert not found.plan


def test_torchtitan_has_a_file_and_options_over_it() -> None:
    found = read(
        "torchrun train.py --job.config_file titan.toml --parallelism.pipeline_parallel_degree=2", gpus=64
    )
    assert found.plan == {"tp": "8", "pp": "2", "zero": "3", "micro": "1", "sequence": "8192"}
    assert (found.batch, found.model) == (2 * 64 // 16, "llama3-70b")
    assert read("x --job.config-file titan.toml --parallelism.tensor-parallel-degree 4").plan["tp"] == "4"
    assert read("x --job.config_file titan.toml").batch == 0, "the batch of one GPU, and no number of them"


def test_nemo_has_overrides() -> None:
    found = read(
        "python train.py trainer.num_nodes=8 model.tensor_model_parallel_size=8 ++model.micro_batch_size=1"
        " model.pipeline_model_parallel_size=4 model.virtual_pipeline_model_parallel_size=null"
        " model.global_batch_size=256 model.encoder_seq_length=4096 model.optim.name=distributed_fused_adam"
    )
    assert found.plan == {"tp": "8", "pp": "4", "zero": "1", "micro": "1", "sequence": "4096"}
    assert found.batch == 256


def test_nemo_2_has_the_batch_among_the_data() -> None:
    found = read(
        "nemo llm pretrain --factory llama3_8b trainer.strategy.tensor_model_parallel_size=2"
        " trainer.strategy.pipeline_model_parallel_size=1 data.global_batch_size=64 data.micro_batch_size=1"
        " data.seq_length=4096"
    )
    assert found == CommandPlan({"tp": "2", "pp": "1", "micro": "1", "sequence": "4096"}, 64)


def test_deepspeed_has_a_file() -> None:
    found = read("deepspeed train.py --max_seq_length 2048 --deepspeed ds.json")
    assert found == CommandPlan({"zero": "3", "micro": "2", "sequence": "2048"}, 64)
    assert read("deepspeed train.py --deepspeed auto.json").batch == 0


def test_deepspeed_s_batch_follows_from_that_of_a_gpu_and_the_steps_between_updates() -> None:
    command = (
        "deepspeed train.py --deepspeed --deepspeed_config micro.json; deepspeed eval.py --deepspeed --x"
    )
    assert read(command, gpus=16).batch == 2 * 4 * 16
    assert read(command).batch == 0, "the batch of one GPU, and no number of them"


JSON = '{"zero_optimization": {"stage": 3}, "train_batch_size": %s}'


@pytest.mark.parametrize(
    ("command", "batch"),
    [
        ("cat > here.json <<EOF", "$BATCH"),
        ("cat <<-'EOF' | tee \"$CONFIG\"", "32"),
        ("cat > lost.txt <<EOF\nEOF\ncat >./here.json << EOF", "${BATCH}"),
        ("cat > ds.json <<E\n{}\nE\ncat << EOF > $CONFIG", "32"),
    ],
)
def test_a_file_that_the_script_writes_itself_is_read(command: str, batch: str) -> None:
    found = read(f"BATCH=32\nCONFIG=here.json\n{command}\n{JSON % batch}\nEOF\nx --deepspeed $CONFIG\n")
    assert found == CommandPlan({"zero": "3"}, 32)


def test_what_the_script_writes_goes_before_what_is_there() -> None:
    assert read(f"cat > ds.json <<EOF\n{JSON % 16}\nEOF\nx --deepspeed ds.json\n").batch == 16
    titan = read("cat > titan.toml <<EOF\n[training]\nseq_len = 9\nEOF\nx --job.config_file titan.toml")
    assert titan.plan == {"zero": "3", "sequence": "9"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"cat > a.json <<EOF\n{JSON % '$1'}\nEOF\n", "a value in a.json is $1"),
        (f"cat > a.json <<'EOF'\n{JSON % '$B'}\nEOF\n", "a.json cannot be read"),
        (2 * f"cat > a.json <<EOF\n{JSON % 8}\nEOF\n", "a.json is written twice"),
        (f"cat > a.json <<EOF\n{JSON % 8}\n", "a.json cannot be read"),
    ],
)
def test_what_the_script_writes_is_not_guessed_either(text: str, problem: str) -> None:
    assert read(f"{text}x --deepspeed a.json").problem == problem


@pytest.mark.parametrize(
    "script",
    [
        "",
        "python train.py --batch-size 8",
        "# --tensor-model-parallel-size 8",
        "x ++model.micro_batch_size=4,8",
    ],
)
def test_other_scripts_tell_nothing(script: str) -> None:
    assert read_command(script, FILES.get) is None
