"""What data sheets say of GPUs and their links, and what published steps tell of their software."""

from collections.abc import Mapping
from dataclasses import dataclass

from dally.errors import InputError
from dally.jobs.training_plan import PRECISIONS
from dally.profiles.parallel.step_constants import USUAL, StepConstants


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """One GPU and its share of the links.

    Attributes:
        flops: Dense matrix products in bf16, per second.
        memory_bytes_per_s: Of its memory.
        domain_bytes_per_s: To the other GPUs of its NVLink domain, each way.
        network_bytes_per_s: Its share of its machine's network, each way.
        constants: Fitted to published steps.
        domain_gpus: GPUs of one machine or NVLink domain, as jobs use them.
        fp4_factor: How many times faster than bf16 matrix products in fp4 are; those in fp8 are twice as
            fast.
    """

    flops: float
    memory_bytes_per_s: float
    domain_bytes_per_s: float
    network_bytes_per_s: float
    constants: StepConstants = USUAL
    domain_gpus: int = 8
    fp4_factor: float = 4.0

    def matrix_flops(self, precision: str) -> float:
        """Dense matrix products per second in a precision.

        Raises:
            InputError: The precision is not known.
        """
        factors = {"bf16": 1.0, "fp8": 2.0, "fp4": self.fp4_factor}
        if precision not in factors:
            raise InputError(f"precision {precision!r} is not known; valid: {', '.join(PRECISIONS)}")
        return self.flops * factors[precision]


_AMPERE = StepConstants(
    matmul=0.915,
    narrow=54.2,
    attention=0.3,
    memory=0.302,
    launch_s=1.01e-3,
    latency_s=6.79e-5,
    hop_s=3e-6,
    network=0.564,
    exposed=0.575,
)
_HOPPER = StepConstants(
    matmul=0.751,
    narrow=80.3,
    attention=0.317,
    memory=0.293,
    launch_s=1e-3,
    latency_s=3e-5,
    hop_s=3.01e-6,
    network=0.709,
    exposed=0.847,
)
_GRACE_HOPPER = StepConstants(
    matmul=0.462,
    narrow=88.4,
    attention=0.3,
    memory=0.0966,
    launch_s=3.04e-3,
    latency_s=5.68e-5,
    hop_s=3e-6,
    network=0.417,
    exposed=0.703,
)
_BLACKWELL = StepConstants(
    matmul=0.903,
    narrow=80.7,
    attention=0.622,
    memory=0.253,
    launch_s=1.07e-3,
    latency_s=2.02e-5,
    hop_s=3.33e-6,
    network=2.5,
    exposed=0.669,
)

GPUS: Mapping[str, GpuSpec] = {
    "a100": GpuSpec(312e12, 2.04e12, 300e9, 12.5e9, _AMPERE),
    "h100": GpuSpec(989e12, 3.35e12, 450e9, 50e9, _HOPPER),
    "gh200": GpuSpec(989e12, 4.0e12, 450e9, 25e9, _GRACE_HOPPER, domain_gpus=4),
    "b200": GpuSpec(2250e12, 8e12, 900e9, 50e9, _BLACKWELL),
    "b300": GpuSpec(2250e12, 8e12, 900e9, 100e9, _BLACKWELL, fp4_factor=6.0),
    "gb200": GpuSpec(2500e12, 8e12, 900e9, 50e9, _BLACKWELL, domain_gpus=64),
    "gb300": GpuSpec(2500e12, 8e12, 900e9, 100e9, _BLACKWELL, domain_gpus=64, fp4_factor=6.0),
}
"""NVIDIA's data sheets. The network is that of a usual machine: 800 Gb/s for eight A100, 400 Gb/s for each
H100 and B200, 800 Gb/s for each B300; GH200 as in the Alps system of CSCS, four with 200 Gb/s each. A rack of
72 GB200 takes jobs in powers of two, so 64 count as its domain. The constants are those of
docs/parallel-plans.md."""


def gpu_spec(name: str) -> GpuSpec:
    """What is known of a GPU type.

    Raises:
        InputError: Nothing is.
    """
    try:
        return GPUS[name]
    except KeyError:
        raise InputError(f"GPU type {name!r} is not known; valid: {', '.join(GPUS)}") from None
