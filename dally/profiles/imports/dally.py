"""The set `dally`: the six models of Dally's first author's simulator, with its own constants.

Its compute times are scaled by undocumented constants, so its slowdowns are dominated by latency and the
extreme ones are not physical: use it to compare with the author's results, not to predict a real cluster.
"""

from dally.profiles.imports.imported import imported
from dally.profiles.schema import Bucket, Compute, Env, Model, Profile

_SOURCE = (
    "constants of the public simulator of the first author of GPU Cluster Scheduling for Network-Sensitive "
    "Deep Learning (arXiv 2401.16492): gradient size, layers, compute time; how backward "
    "overlaps is fitted, see docs/predictor.md"
)

_ROWS = (
    ("vgg11", 531, 11, 3632, 256, 0.8),
    ("alexnet", 244, 8, 1032, 512, 1.0),
    ("resnet18", 47, 21, 149, 512, 1.0),
    ("resnet50", 102, 54, 11647, 512, 0.35),
    ("mobilenetv3", 9.9, 52, 53, 512, 1.0),
    ("bert-large", 562, 66, 1703, 256, 1.0),
)
"""Model, megabytes (10^6) of fp32 gradients, layers, microseconds of compute, local batch, and the share of
compute over which layers become ready: that share, in steps of 0.05, is the one that brings the four
slowdowns of a model nearest to the author's."""


def dally_profiles() -> tuple[Profile, ...]:
    """The profiles of the set."""
    return tuple(_profile(*row) for row in _ROWS)


def _profile(
    name: str, grad_mb: float, layers: int, compute_us: float, local_batch: int, overlap: float
) -> Profile:
    grad_bytes = round(grad_mb * 1e6)
    compute_s = compute_us * 1e-6
    bwd_s = compute_s * overlap
    fwd_s = compute_s - bwd_s
    return Profile(
        schema=1,
        provenance=imported(_SOURCE, "facts, no code or data copied"),
        env=Env(),
        model=Model(
            name=name,
            params=grad_bytes // 4,
            dtype="float32",
            grad_bytes=grad_bytes,
            local_batch=local_batch,
            optimizer=None,
            buckets=tuple(
                Bucket(round(grad_bytes / layers), fwd_s + bwd_s * number / layers)
                for number in range(1, layers + 1)
            ),
            peak_memory_bytes=None,
        ),
        compute=Compute(fwd_s, bwd_s, 0.0, bwd_s * (1 - 1 / layers), None),
        tiers={},
    )
