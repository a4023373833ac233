"""`python -m profiler.gpu_validation FOLDER`: try all that needs a GPU; exits with 0 if nothing is wrong.

Exits with 1 where a check has not passed, and with 2 where there is no NVIDIA GPU.
"""

import subprocess
import sys
from pathlib import Path

from profiler.gpu_validation.checks import (
    CheckFolder,
    GpuCheck,
    GpuCheckResult,
    all_well,
    describe,
    run_checks,
    write_summary,
)
from profiler.gpu_validation.commands import StepError, last_line, run_command
from profiler.gpu_validation.preemption import checkpoint_and_resume, controller_preempts
from profiler.gpu_validation.profile_checks import (
    judge_compute,
    judge_counters,
    judge_link,
    judge_step_time,
    read_profiles,
)
from profiler.gpu_validation.recorder_check import judge_records, record_ranks

LIMIT_S = 465.0
"""Of all checks together: under eight minutes, with the start and the summary."""

MODELS = (
    *("resnet18", "resnet50", "vgg11", "vgg16", "alexnet", "mobilenetv3"),
    *("bert-base", "gpt2", "digits", "resnet8", "chargpt", "ncf"),
)

_ANSWER_S = 20.0
_RATE_BPS = 1e9
_GPU_TYPE = "local"
"""What Slurm calls the GPU here: any name will do, as nothing but this machine is meant."""

_PYTHON = {
    "torch": "torch",
    "transformers": "transformers",
    "sklearn": "scikit-learn",
    "numpy": "numpy",
    "click": "click",
    "rich": "rich",
    "sortedcontainers": "sortedcontainers",
    "ClusterShell": "ClusterShell",
    "orjson": "orjson",
    "yaml": "pyyaml",
    "scipy": "scipy",
    "prometheus_client": "prometheus-client",
}
_NVML = {"pynvml": "nvidia-ml-py"}
_PROCESSES = {"setpriv": "util-linux"}
_NETWORK = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux"}
_SLURM = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}

_PROFILE_MODELS = (sys.executable, "-c", "from profiler.commands import main; main()")
_SHORT = ("--allow-busy", "--precision=bf16", "--repetitions=15", "--budget=1", "--warm-up=3", "--stall=60")


def main() -> None:
    """Try everything."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/gpu-validation")
    machine = list_gpus()
    if not machine:
        print("validate_gpu: no NVIDIA GPU here: nvidia-smi lists none", file=sys.stderr)
        sys.exit(2)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        print(f"validate_gpu: {folder} exists; name another folder", file=sys.stderr)
        sys.exit(2)
    print(machine)
    results: list[GpuCheckResult] = []
    for result in run_checks(CHECKS, folder, LIMIT_S):
        results.append(result)
        write_summary(results, machine, folder)
        print(describe([result]).splitlines()[0], flush=True)
    print("\n".join(describe(results).splitlines()[len(results) :]))
    print(f"findings: {folder}/   summary: {folder / 'summary.txt'}")
    sys.exit(0 if all_well(results) else 1)


def list_gpus() -> str:
    """The GPUs of this machine as nvidia-smi lists them, on one line; empty without any."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "; ".join(done.stdout.split("\n")).strip("; ") if done.returncode == 0 else ""


def _see_gpu(work: CheckFolder) -> str:
    told = (
        "import torch; assert torch.cuda.is_available(), 'torch sees no GPU'; "
        "print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(), "
        "'NCCL', '.'.join(map(str, torch.cuda.nccl.version())), "
        "'bf16', torch.cuda.is_bf16_supported(including_emulation=False))"
    )
    run_command((sys.executable, "-c", told), work.log("torch"), work.limit_s)
    return last_line(work.log("torch"))


def _measure_compute(work: CheckFolder) -> str:
    out = work.folder / "profiles"
    argv = (*_PROFILE_MODELS, "here", *MODELS, "--ranks=1", *_SHORT, f"--gpu-type={_GPU_TYPE}")
    try:
        run_command((*argv, f"--out={out}"), work.log("compute"), work.limit_s)
    except StepError:
        if (out / "raw").exists():  # what was measured until then is worth having
            fit = (*_PROFILE_MODELS, "fit", str(out))
            run_command(fit, work.log("compute-fit"), _ANSWER_S)
        raise
    return judge_compute(read_profiles(out), MODELS)


def _reduce_over_link(work: CheckFolder) -> str:
    out = work.folder / "profiles-socket"
    link = ("--racks=1,1", "--rate=1Gb", "--uplink=1Gb", "--shapes=network-2x1", "--sweep=64K:16M")
    small = ("resnet18", "--backend=nccl", "--local-batch=16", f"--gpu-type={_GPU_TYPE}")
    argv = (*_PROFILE_MODELS, "local", *small, *link, *_SHORT, f"--out={out}")
    run_command(argv, work.log("nccl"), work.limit_s)
    return judge_link(read_profiles(out)["resnet18"], _RATE_BPS)


def _record_nccl(work: CheckFolder) -> str:
    return judge_records(record_ranks(work, "resnet18", "nccl"), "resnet18")


def _take_gpu(work: CheckFolder) -> str:
    said = controller_preempts(work, _GPU_TYPE)
    (steps,) = (work.folder / "controller").glob("*/jobs/long/steps.jsonl")
    return f"{said}; {judge_step_time(steps, read_profiles(work.folder / 'profiles')['resnet18'])}"


CHECKS = (
    GpuCheck("torch sees the GPU", 40.0, _see_gpu, {"torch": "torch"}, {}),
    GpuCheck("compute in bf16", 150.0, _measure_compute, _PYTHON, _PROCESSES, ("torch sees the GPU",)),
    GpuCheck(
        "NVML counters",
        10.0,
        lambda work: judge_counters(read_profiles(work.folder / "profiles")),
        _NVML,
        {},
        ("compute in bf16",),
    ),
    GpuCheck(
        "NCCL over a link", 75.0, _reduce_over_link, _PYTHON, _PROCESSES | _NETWORK, ("torch sees the GPU",)
    ),
    GpuCheck("the recorder", 60.0, _record_nccl, _PYTHON, {}, ("torch sees the GPU",)),
    GpuCheck("checkpoint and resume", 75.0, checkpoint_and_resume, _PYTHON, {}, ("torch sees the GPU",)),
    GpuCheck(
        "the controller",
        100.0,
        _take_gpu,
        _PYTHON,
        _PROCESSES | _NETWORK | _SLURM,
        ("compute in bf16",),
    ),
)

if __name__ == "__main__":
    main()
