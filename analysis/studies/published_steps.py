"""Reads published step times of parallel plans: vTrain's, llm-foundry's, Sailor's and Megatron-Bridge's."""

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dally.errors import InputError
from dally.jobs.parallelism import Parallelism
from dally.profiles.parallel.gpu_specs import GPUS
from dally.profiles.parallel.rank_groups import whole_machines
from dally.profiles.parallel.training_step import BatchSizes, TrainingStep
from dally.profiles.parallel.transformer import MODELS, gpt

MPT = {
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
"""Layers, hidden width and heads of llm-foundry's models (its scripts/train/yamls/pretrain)."""

BRIDGE_MODELS = {
    "DeepSeekV3": "deepseek-v3",
    "GPT OSS 120B": "gpt-oss-120b",
    "Kimi_K2": "kimi-k2",
    "LLAMA3.1_405B": "llama3-405b",
    "LLAMA3_70B": "llama3-70b",
    "LLAMA3_8B": "llama3-8b",
    "Nemotron_3_Nano": "nemotron-3-nano",
    "Nemotron_3_Super": "nemotron-3-super",
    "Qwen3_235B_a22B": "qwen3-235b-a22b",
    "Qwen3_30B_a3B": "qwen3-30b-a3b",
}

_OPT_LAYERS = 24
_NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?)")

Row = Mapping[str, str]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """A row of a table.

    Attributes:
        step: What was run.
        seconds: Its measured time.
        model: The model's size, by which rows are held out.
        gpu: The GPU type.
        release: Of the software that it was measured with, where a table has several.
    """

    step: TrainingStep
    seconds: float
    model: str
    gpu: str
    release: str = ""

    def tokens_per_gpu(self, seconds: float) -> float:
        """Tokens per second of each GPU, were the step to take so long."""
        return self.step.batch.tokens / self.step.plan.gpus / seconds


def read_vtrain(path: Path, recompute: bool) -> list[PublishedStep]:
    """Megatron-LM's GPT on machines of eight A100; gradients in fp32, attention by separate kernels.

    Args:
        path: `multi_node.csv` or `single_node.csv`.
        recompute: Whether activations are taken to be computed again; the table does not say.

    Raises:
        InputError: The table cannot be read.
    """

    def read(row: Row) -> PublishedStep:
        tp, dp, pp, layers, hidden = (int(row[name]) for name in ("tp", "dp", "pp", "layers", "hidden"))
        plan = Parallelism(tp=tp, dp=dp, pp=pp, recompute=recompute)
        batch = BatchSizes(int(row["global_batch"]), int(row["micro_batch"]), int(row["seq_len"]))
        model = gpt(layers, hidden, int(row["heads"]))
        machines = whole_machines(plan.gpus, GPUS["a100"].domain_gpus)
        step = TrainingStep(
            model, plan, batch, GPUS["a100"], machines, fused_attention=False, gradient_bytes=4
        )
        return PublishedStep(step, float(row["iteration_ms"]) / 1e3, f"{layers} x {hidden}", "a100")

    return _read_csv(path, read)


def read_llm_foundry(folder: Path) -> list[PublishedStep]:
    """MPT in bf16 under FSDP on 8 to 512 H100.

    Raises:
        InputError: A table cannot be read.
    """
    names = ("h100_80gb_bf16.csv", "h100_80gb_bf16_large_scale_128_gpus.csv")
    return [row for name in names for row in _read_foundry(folder / name, "bf16")]


def read_llm_foundry_fp8(folder: Path) -> list[PublishedStep]:
    """MPT in fp8 under FSDP on 8 H100.

    Raises:
        InputError: The table cannot be read.
    """
    return _read_foundry(folder / "h100_80gb_fp8.csv", "fp8")


def _read_foundry(path: Path, precision: str) -> list[PublishedStep]:
    def read(row: Row) -> PublishedStep:
        layers, hidden, heads = MPT[row["Model"]]
        gpus, micro, sequence = (int(row[name]) for name in ("# GPUs", "MicroBatchSize", "SeqLen (T)"))
        plan = Parallelism(
            dp=gpus,
            zero={"FULL_SHARD": 3, "SHARD_GRAD_OP": 2}[row["Sharding Strategy"]],
            recompute=row["Activation Checkpointing"] == "True",
        )
        batch = BatchSizes(micro * gpus * int(row["GradAccum"]), micro, sequence)
        machines = whole_machines(gpus, GPUS["h100"].domain_gpus)
        model = gpt(layers, hidden, heads, 50_368)
        step = TrainingStep(model, plan, batch, GPUS["h100"], machines, precision)
        seconds = batch.tokens / gpus / float(row["Throughput (T/s/GPU)"])
        return PublishedStep(step, seconds, row["Model"], "h100")

    return _read_csv(path, read)


def read_sailor(folder: Path) -> list[PublishedStep]:
    """OPT-350M on machines of four GH200; of its 26 numbered layers the outer ones are the embeddings.

    Raises:
        InputError: There is no plan, or one cannot be read.
    """
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(f"{folder}: has no *.json")
    return [_read_or_name(path, lambda text: _sailor_step(json.loads(text))) for path in paths]


def _sailor_step(data: Mapping[str, Any]) -> PublishedStep:
    pipeline = data["pipeline_list"][0]
    inner = range(1, _OPT_LAYERS + 1)
    plan = Parallelism(
        dp=pipeline["dp"][0],
        tp=pipeline["tmp_per_stage"][0][0][1],
        pp=pipeline["num_stages"],
        stages=tuple(sum(layer in inner for layer in stage) for stage in pipeline["layers_per_stage"]),
    )
    step = TrainingStep(
        gpt(_OPT_LAYERS, 1024, 16, 50_272),
        plan,
        BatchSizes(data["gbs"], data["mbs"], 2048),
        GPUS["gh200"],
        whole_machines(plan.gpus, GPUS["gh200"].domain_gpus),
        fused_attention=False,
        gradient_bytes=4,
    )
    return PublishedStep(step, float(data["real"]), "opt-350m", "gh200")


def read_megatron_bridge(path: Path) -> list[PublishedStep]:
    """Pre-training of dense and mixture-of-experts models on H100, B200, B300, GB200 and GB300.

    Where a cell has two figures, for two recipes, the first counts. A blank precision is that of FP8.
    Optimizers are distributed (ZeRO-1), those with FSDP shard all. Models of different routing rules count as
    one.

    Raises:
        InputError: The table cannot be read.
    """

    def read(row: Row) -> PublishedStep | None:
        if row["phase"] != "Pre-Training Performance":
            return None
        name, system = row["model"], row["System"]
        if name.startswith("System: "):  # older tables have the columns otherwise
            name, system = row["Model"], name.removeprefix("System: ")
        model, gpu = BRIDGE_MODELS[name.split(" (")[0]], system.removeprefix("DGX-").lower()
        shape, gpus, pp = MODELS[model], int(row["#-GPUs"]), _number(row["PP"])
        tp, cp = _number(row["TP"]), _number(row["CP"])
        plan = Parallelism(
            dp=gpus // (tp * pp * cp),
            tp=tp,
            pp=pp,
            cp=cp,
            ep=_number(row["EP"]) if shape.experts else 1,
            zero=3 if _number(row["FSDP"], none=0) > 1 else 1,
            vp=_number(row["VP"]) if pp > 1 else 1,
        )
        batch = BatchSizes(int(row["GBS"]), int(row["MBS"]), int(row["Sequence Length"]))
        machines = whole_machines(gpus, GPUS[gpu].domain_gpus)
        precision = {"BF16": "bf16", "NVFP4": "fp4"}.get(row["Precision"], "fp8")
        step = TrainingStep(shape, plan, batch, GPUS[gpu], machines, precision)
        seconds = batch.tokens / gpus / _number(row["Tokens / sec / GPU"])
        return PublishedStep(step, seconds, model, gpu, row["version"])

    return _read_csv(path, read)


def _number(text: str, none: int = 1) -> int:
    """The first number of a cell; `none` where it has none, as `n/a`."""
    found = _NUMBER.match(text)
    return int(float(found[1])) if found else none


def _read_csv(path: Path, read: Callable[[Row], PublishedStep | None]) -> list[PublishedStep]:
    def rows(text: str) -> Iterable[PublishedStep]:
        found = map(read, csv.DictReader(text.splitlines()))
        return [row for row in found if row is not None]

    return list(_read_or_name(path, rows))


def _read_or_name(path: Path, read: Callable[[str], Found]) -> Found:
    """What a file's text says.

    Raises:
        InputError: It cannot be read; the message names the file.
    """
    try:
        return read(path.read_text(encoding="utf-8"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise InputError(f"{path}: is not the published table: {error!r}") from error
