"""Reads a job's parallel plan from the options of well-known trainers in its script, where plain.

Read are Megatron-LM's options, torchtitan's with its TOML file, NeMo's overrides and DeepSpeed's JSON file;
the files also where the script writes them itself, by a here-document.
Nothing is run and nothing guessed: where a value is a variable that the script does not set just once to
something plain, or is given twice, no plan is read, and a line says why. `${TP:-8}` is plain, too: it is what
the environment has of that name, or the default.
"""

import json
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from os.path import normpath

from dally.config_text import parse_toml
from dally.errors import InputError

ReadFile = Callable[[str], str | None]
"""The text of a file that the script names; None if it cannot be read."""

_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_CONTINUED = re.compile(r"\\\n")
_SET = re.compile(r"(?<![\w.$\"'{-])(\w+)[-+*/%]?=|\b(?:for|read)\s+(\w+)", re.MULTILINE)
_PLAIN = r"[\"']?([\w./-]{1,255})[\"']?"
_SET_PLAINLY = re.compile(rf"^(?:export\s+)?(\w+)={_PLAIN}(?:[^\S\n]*;)?[^\S\n]*$", re.MULTILINE)
_DEFAULT = re.compile(rf"\$\{{([A-Za-z_]\w*):-{_PLAIN}\}}")
_OWN_DEFAULT = re.compile(rf"^((?:export\s+)?(\w+)=)[\"']?\$\{{\2:-{_PLAIN}\}}[\"']?", re.MULTILINE)
"""As in `TP=${TP:-8}`."""
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_HERE = re.compile(r"<<-?[ \t]*([\"']?)(\w+)\1")
"""Where a here-document is announced: its quote and last word."""
_INTO = re.compile(r"(?:(?<![0-9>])>\|?|\btee\s)\s*[\"']?([^\s\"'<>|;&]+)")
_USED = re.compile(r"\$\w+|\$\{\w+\}")
_LONGEST_PROBLEM = 200
_WHOLE = re.compile(r"-?[0-9]{1,10}")
_VALUE = r"(?:\s*=\s*|\s+)[\"']?(?!--)(\$\([^\n)]{0,99}\)+|[^\s\"'();&|<>]+)"

_MEGATRON = {
    "tp": "tensor-model-parallel-size",
    "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
    "vp": "num-virtual-stages-per-pipeline-rank",
    "micro": "micro-batch-size",
    "batch": "global-batch-size",
    "sequence": "seq-length",
    "layers": "num-layers",
    "hidden": "hidden-size",
    "heads": "num-attention-heads",
    "ffn": "ffn-hidden-size",
    "vocabulary": "vocab-size",
    "kv_heads": "num-query-groups",
    "head_size": "kv-channels",
    "experts": "num-experts",
    "top_k": "moe-router-topk",
    "expert_ffn": "moe-ffn-hidden-size",
    "chunk": "num-layers-per-virtual-pipeline-stage",
}
_SHARDING = {"no_shard": "0", "optim": "1", "optim_grads": "2", "optim_grads_params": "3"}
"""Stages of ZeRO by what Megatron-LM's `--data-parallel-sharding-strategy` shards."""
_TORCHTITAN = {
    "tp": "parallelism.tensor_parallel_degree",
    "pp": "parallelism.pipeline_parallel_degree",
    "cp": "parallelism.context_parallel_degree",
    "ep": "parallelism.expert_parallel_degree",
    "shard": "parallelism.data_parallel_shard_degree",
    "replicate": "parallelism.data_parallel_replicate_degree",
    "pp_micro": "parallelism.pipeline_parallel_microbatch_size",
    "local": "training.local_batch_size",
    "batch": "training.global_batch_size",
    "sequence": "training.seq_len",
}
_NEMO = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "vp": "virtual_pipeline_model_parallel_size",
    "micro": "micro_batch_size",
    "batch": "global_batch_size",
    "sequence": "encoder_seq_length",
}
_SHAPE = ("layers", "hidden", "heads", "ffn", "vocabulary", "kv_heads", "head_size", "experts", "top_k")
_PLAN = ("tp", "pp", "cp", "ep", "vp", "zero", "recompute", "order", "micro", "sequence", "precision")


class _UnclearError(Exception):
    """A value cannot be told from the script; the message says which."""


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """What a script's command line tells of a training.

    Attributes:
        plan: Parts of a plan by key, as `TrainingPlan.parse` takes them.
        batch: Sequences of a step; 0 if it does not tell.
        model: The model, by name or spelled out; empty if it does not tell.
        problem: Why nothing was read, in a few words; empty if something was.
    """

    plan: Mapping[str, str] = field(default_factory=dict)
    batch: int = 0
    model: str = ""
    problem: str = ""


def read_command(
    script: str,
    read_file: ReadFile,
    gpus: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> CommandPlan | None:
    """What a script tells; None if it runs none of these trainers with a plan.

    Args:
        script: Its text, with the arguments that it is given.
        read_file: Reads a file that it names.
        gpus: Of the job, where they are known: the batch of torchtitan may be that of one GPU.
        variables: The job's environment; None if it is not known, so that no default counts.
    """
    text = _CONTINUED.sub(" ", _COMMENT.sub("", script))
    if variables is not None:
        text = _with_defaults(text, variables)
    parts = _Script(text)

    def read_any(file: str) -> str | None:
        return parts.written(file) or read_file(file)

    try:
        for read in (_megatron, _torchtitan, _nemo):
            found = read(parts, read_any, gpus)
            if found is not None:
                return found
        return _deepspeed(parts, read_any, gpus)
    except _UnclearError as error:
        return CommandPlan(problem=str(error)[:_LONGEST_PROBLEM])


def _with_defaults(text: str, variables: Mapping[str, str]) -> str:
    """A script in which `${NAME:-default}` is what it is in a job with these variables."""
    text = _OWN_DEFAULT.sub(lambda own: f"{own[1]}{variables.get(own[2]) or own[3]}", text)
    names = {name for names in _SET.findall(text) for name in names}

    def plain(found: re.Match[str]) -> str:
        return f"${{{found[1]}}}" if found[1] in names else variables.get(found[1]) or found[2]

    return _DEFAULT.sub(plain, text)


class _Script:
    """A script in which options are looked up."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._often = Counter(name for names in _SET.findall(text) for name in names)
        self._plainly: dict[str, str] = dict(_SET_PLAINLY.findall(text))

    def option(self, name: str, dashes: str = "--") -> str | None:
        """The value of an option; None if it is not there.

        Raises:
            _UnclearError: It has two values, or one that only the shell knows.
        """
        given = re.findall(rf"(?<![\w.-]){dashes}{_spelled(name)}{_VALUE}", self._text)
        values = {self._plain(name, value) for value in given}
        if len(values) > 1:
            raise _UnclearError(f"{name} is given as {' and as '.join(sorted(values))}")
        return values.pop() if values else None

    def number(self, name: str, dashes: str = "--") -> int | None:
        """The whole number that an option has.

        Raises:
            _UnclearError: As for `option`, or it is no number.
        """
        value = self.option(name, dashes)
        return None if value is None or value.lower() in ("null", "none") else _number(name, value)

    def has(self, name: str) -> bool:
        """Whether an option is there."""
        return re.search(rf"(?<![\w.-])--{_spelled(name)}(?![\w-])", self._text) is not None

    def written(self, file: str) -> str | None:
        """What the script itself writes into a file, by a here-document; None if it writes none.

        Raises:
            _UnclearError: It writes the file twice, or with a value that only the shell knows.
        """
        place = normpath(file)
        found = [here for here in _here_documents(self._text) if self._into(here[0]) == place]
        if not found:
            return None
        if len(found) > 1:
            raise _UnclearError(f"{file} is written twice")
        _, quote, text = found[0]
        return text if quote else _USED.sub(lambda used: self._plain(f"a value in {file}", used[0]), text)

    def _into(self, command: str) -> str:
        """The file into which a command writes; empty if that cannot be told."""
        into = _INTO.search(command)
        try:
            return normpath(self._plain("a file", into[1])) if into else ""
        except _UnclearError:
            return ""

    def _plain(self, name: str, value: str) -> str:
        """A value with its variable replaced, if the script sets that just once, to something plain."""
        variable = _VARIABLE.fullmatch(value)
        if variable is None:
            if "$" in value or "`" in value:
                raise _UnclearError(f"{name} is {value}")
            return value
        if self._often[variable[1]] != 1 or variable[1] not in self._plainly:
            raise _UnclearError(f"{name} is {value}")
        return self._plainly[variable[1]]


def _here_documents(script: str) -> Iterator[tuple[str, str, str]]:
    """The here-documents of a script: the line that announces it, the quote of its last word, its text."""
    lines = script.split("\n")
    places: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        places.setdefault(line.strip(" \t"), []).append(at)
    at = -1
    while (at := at + 1) < len(lines):
        for begin in reversed([*_HERE.finditer(lines[at])]):
            ends = places.get(begin[2], [])
            if (later := bisect_right(ends, at)) < len(ends):
                yield lines[at], begin[1], "".join(f"{line}\n" for line in lines[at + 1 : ends[later]])
                at = ends[later]
                break


def _spelled(name: str) -> str:
    """An option's name as a pattern; torchtitan and others take `-` for `_`."""
    return re.escape(name).replace("_", "[-_]")


def _numbers(script: _Script, options: Mapping[str, str], dashes: str = "--") -> dict[str, int]:
    found = ((key, script.number(name, dashes)) for key, name in options.items())
    return {key: value for key, value in found if value is not None}


def _megatron(script: _Script, read_file: ReadFile, gpus: int | None) -> CommandPlan | None:
    """Megatron-LM's options; what is not there has the default of its argument parser."""
    if not script.has(_MEGATRON["tp"]) and not script.has(_MEGATRON["pp"]):
        return None
    numbers = _numbers(script, _MEGATRON)
    plan = {key: str(numbers[key]) for key in _PLAN if key in numbers}
    if "chunk" in numbers and "layers" in numbers:
        chunks, over = divmod(numbers["layers"], numbers.get("pp", 1) * numbers["chunk"])
        if over:
            raise _UnclearError(f"{_MEGATRON['chunk']} does not divide the layers of a stage")
        plan["vp"] = str(chunks)
    if script.has("use-distributed-optimizer"):
        plan["zero"] = "1"
    if (strategy := script.option("data-parallel-sharding-strategy")) in _SHARDING:
        plan["zero"] = _SHARDING[strategy]
    if script.has("use-torch-fsdp2"):
        plan["zero"] = "3"
    # Megatron-DeepSpeed's scripts tell the stage twice, and write the file as they run.
    stage = script.option("zero-stage") or _deepspeed_stage(script, read_file)
    if stage:
        plan["zero"] = stage
    if script.option("recompute-granularity") == "full":
        plan["recompute"] = "yes"
    if script.has("use-tp-pp-dp-mapping"):
        plan["order"] = "tp-cp-pp-dp"
    if script.has("fp8-format"):
        plan["precision"] = "fp8"
    return CommandPlan(plan, numbers.get("batch", 0), _megatron_model(script, numbers))


def _megatron_model(script: _Script, numbers: Mapping[str, int]) -> str:
    """The model spelled out; empty if the options do not tell all of its shape."""
    if not {"layers", "hidden", "heads", "vocabulary"} <= numbers.keys():
        return ""
    shape, gated = dict(numbers), script.has("swiglu")
    # Megatron-LM's own default, megatron/training/arguments.py: 4 h, and of SwiGLU two thirds in steps of 64.
    usual = shape["hidden"] * 8 // 3 // 64 * 64 if gated else 4 * shape["hidden"]
    shape["ffn"] = shape.get("expert_ffn", shape.get("ffn", usual))
    if not script.has("group-query-attention"):
        shape.pop("kv_heads", None)
    if "experts" in shape:
        shape.setdefault("top_k", 2)
    parts = [f"{key}={shape[key]}" for key in _SHAPE if key in shape]
    tied = not script.has("untie-embeddings-and-output-weights")
    return ",".join([*parts, f"gated={int(gated)}", f"tied={int(tied)}"])


def _torchtitan(script: _Script, read_file: ReadFile, gpus: int | None) -> CommandPlan | None:
    """Torchtitan's TOML file, and options over it."""
    file = script.option("job.config_file")
    if file is None and not any(script.has(name) for name in _TORCHTITAN.values()):
        return None
    config = _toml(file, read_file) if file else {}
    texts = {key: (name, _text(script, config, name)) for key, name in _TORCHTITAN.items()}
    known = {key: _number(name, text) for key, (name, text) in texts.items() if text}
    if known.get("replicate", 1) > 1:
        raise _UnclearError(
            f"{_TORCHTITAN['replicate']} is {known['replicate']}, and plans shard over all of dp"
        )
    plan = {key: str(known[key]) for key in _PLAN if key in known}
    plan["zero"] = "0" if known.get("shard") == 1 else "3"
    micro = known.get("pp_micro", 1) if known.get("pp", 1) > 1 else known.get("local")
    if micro is not None:
        plan["micro"] = str(micro)
    batch = known.get("batch", 0)
    if batch < 1 and gpus and "local" in known:
        batch = known["local"] * max(1, gpus // prod(known.get(axis, 1) for axis in ("tp", "pp", "cp")))
    named = [_text(script, config, name) for name in ("model.name", "model.flavor")]
    return CommandPlan(plan, max(0, batch), "-".join(named).lower() if all(named) else "")


def _text(script: _Script, config: Mapping[str, Mapping[str, object]], name: str) -> str:
    """What an option says, or the file; empty if neither does."""
    table, _, entry = name.partition(".")
    told, section = script.option(name), config.get(table)
    if told is None and isinstance(section, Mapping) and entry in section:
        told = str(section[entry])
    return told or ""


def _number(name: str, text: str) -> int:
    """A whole number; 0 is none of which a plan can be made, -1 leaves a value to the trainer."""
    if not _WHOLE.fullmatch(text) or int(text) == 0:
        raise _UnclearError(f"{name} is {text}")
    return int(text)


def _nemo(script: _Script, read_file: ReadFile, gpus: int | None) -> CommandPlan | None:
    """NeMo's overrides; its file may say more, so both tp and pp have to be among them."""
    prefix = r"\+{0,2}(?:model|trainer\.strategy|data)\."
    if not any(script.option(_NEMO[axis], prefix) for axis in ("tp", "pp")):
        return None
    numbers = _numbers(script, {"sequence": "seq_length"}, prefix) | _numbers(script, _NEMO, prefix)
    if missing := sorted({"tp", "pp"} - numbers.keys()):
        raise _UnclearError(f"{_NEMO[missing[0]]} is left to NeMo's configuration")
    plan = {key: str(numbers[key]) for key in _PLAN if key in numbers}
    if script.option("optim.name", r"\+{0,2}model\.") == "distributed_fused_adam":
        plan["zero"] = "1"
    return CommandPlan(plan, numbers.get("batch", 0))


def _deepspeed(script: _Script, read_file: ReadFile, gpus: int | None) -> CommandPlan | None:
    """DeepSpeed's JSON file, of a training that is data-parallel only."""
    stage = _deepspeed_stage(script, read_file)
    if stage is None:
        return None
    for axis in ("pipe", "pipeline", "model", "tensor", "sequence"):
        if (size := script.number(f"{axis}_parallel_size")) not in (None, 1):
            raise _UnclearError(f"{axis}_parallel_size is {size}, and of DeepSpeed only plans of dp are read")
    config = _deepspeed_config(script, read_file)
    plan = {"zero": stage}
    micro, batch = config.get("train_micro_batch_size_per_gpu"), config.get("train_batch_size")
    if isinstance(micro, int):
        plan["micro"] = str(micro)
        steps = config.get("gradient_accumulation_steps", 1)
        if not isinstance(batch, int) and isinstance(steps, int):
            batch = micro * steps * (gpus or 0)
    lengths = ("seq-length", "max_seq_length", "max-seq-length", "block_size")
    told = {value for name in lengths if (value := script.number(name)) is not None}
    if len(told) == 1:
        plan["sequence"] = str(told.pop())
    return CommandPlan(plan, batch if isinstance(batch, int) else 0)


def _deepspeed_stage(script: _Script, read_file: ReadFile) -> str | None:
    zero = _deepspeed_config(script, read_file).get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, Mapping) else None
    return str(stage) if isinstance(stage, int) else None


def _deepspeed_config(script: _Script, read_file: ReadFile) -> Mapping[str, object]:
    names = [script.option(name) for name in ("deepspeed_config", "deepspeed-config", "deepspeed")]
    file = next((name for name in names if name and name.endswith(".json")), None)
    if file is None:
        return {}
    text = read_file(file)
    try:
        config = json.loads(text or "")
    except (ValueError, RecursionError):
        raise _UnclearError(f"{file} cannot be read") from None
    return config if isinstance(config, Mapping) else {}


def _toml(file: str, read_file: ReadFile) -> Mapping[str, Mapping[str, object]]:
    text = read_file(file)
    try:
        if text is None:
            raise _UnclearError(f"{file} cannot be read")
        return parse_toml(text)
    except InputError:
        raise _UnclearError(f"{file} cannot be read") from None
