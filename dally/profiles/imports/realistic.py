"""The set `realistic`: six models on V100 in fp32, with true gradient sizes and DDP's buckets.

ResNet-50 and BERT-large have published training throughputs of one V100. The other compute times are derived
from the model's work at the rate that ResNet-50 reaches, so take them as right within a factor of two.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dally.profiles.imports.layers import LAYERS, TensorGroup
from dally.profiles.imports.origin import imported
from dally.profiles.schema import Bucket, Compute, Env, Model, Profile

_MIB = 1024 * 1024
_FIRST_BUCKET_BYTES, _BUCKET_BYTES = 1 * _MIB, 25 * _MIB
_HBM_BYTES_PER_S = 900e9
_RESNET50_SAMPLES_PER_S = 367.0
_BERT_SAMPLES_PER_S = 7.56
_MOBILE_EFFICIENCY = 0.1
"""Depthwise convolutions wait for memory; assumed to reach a tenth of ResNet-50's arithmetic rate."""

_NVIDIA = "NVIDIA DeepLearningExamples, "
_PUBLISHED_RESNET50 = (
    _NVIDIA + "PyTorch ResNet50 v1.5 README: DGX-1 with V100 16 GB, one GPU, FP32: 367 images/s"
)
_PUBLISHED_BERT = (
    _NVIDIA
    + "TensorFlow BERT README of March 2019: BERT-large pre-training, DGX-1 with V100 32 GB, one GPU, "
    "FP32, batch 7: 7.56 sentences/s"
)
_DERIVED = f"derived from the model's work at the arithmetic rate of: {_PUBLISHED_RESNET50}"


@dataclass(frozen=True, slots=True)
class _RealisticRow:
    """A model, its batch, how often the optimizer passes over memory, its rate and where that comes from."""

    name: str
    local_batch: int
    optimizer: str
    memory_passes: int
    samples_per_s: float
    source: str


def _derived_rate(name: str, efficiency: float = 1.0) -> float:
    """Samples/s at ResNet-50's published rate of multiply-accumulates times an efficiency."""
    return _RESNET50_SAMPLES_PER_S * _macs("resnet50") / _macs(name) * efficiency


def _macs(name: str) -> float:
    return sum(layer.macs for layer in LAYERS[name])


def _rows() -> tuple[_RealisticRow, ...]:
    mobile_source = f"{_DERIVED}, times {_MOBILE_EFFICIENCY:g} for depthwise convolutions (assumed)"
    return (
        _RealisticRow("vgg11", 64, "sgd", 5, _derived_rate("vgg11"), _DERIVED),
        _RealisticRow("alexnet", 256, "sgd", 5, _derived_rate("alexnet"), _DERIVED),
        _RealisticRow("resnet18", 128, "sgd", 5, _derived_rate("resnet18"), _DERIVED),
        _RealisticRow("resnet50", 128, "sgd", 5, _RESNET50_SAMPLES_PER_S, _PUBLISHED_RESNET50),
        _RealisticRow(
            "mobilenetv3", 256, "sgd", 5, _derived_rate("mobilenetv3", _MOBILE_EFFICIENCY), mobile_source
        ),
        _RealisticRow("bert-large", 7, "adam", 7, _BERT_SAMPLES_PER_S, _PUBLISHED_BERT),
    )


def realistic_profiles() -> tuple[Profile, ...]:
    """The profiles of the set."""
    return tuple(_profile(row) for row in _rows())


def ddp_buckets(layers: Sequence[TensorGroup], fwd_s: float, bwd_s: float) -> tuple[Bucket, ...]:
    """The buckets PyTorch's DistributedDataParallel forms, and when they are ready.

    Tensors join in reverse order and a bucket closes once it holds its limit: 1 MiB the first, 25 MiB the
    others (torch.nn.parallel.DistributedDataParallel, bucket_cap_mb). A tensor is never split. Backward
    passes the layers in reverse, each in proportion to its work; gradients are fp32.
    """
    work = sum(layer.macs for layer in layers)
    buckets: list[Bucket] = []
    held, done = 0, 0.0
    for layer in reversed(layers):
        done += layer.macs
        for tensor in reversed(layer.params):
            held += tensor * 4
            if held >= (_BUCKET_BYTES if buckets else _FIRST_BUCKET_BYTES):
                buckets.append(Bucket(held, fwd_s + bwd_s * min(1.0, done / work)))
                held = 0
    return (*buckets, Bucket(held, fwd_s + bwd_s)) if held else tuple(buckets)


def _profile(row: _RealisticRow) -> Profile:
    """Backward takes two thirds of forward and backward; the optimizer is bound by memory bandwidth."""
    layers = LAYERS[row.name]
    params = sum(sum(layer.params) for layer in layers)
    step_s = row.memory_passes * params * 4 / _HBM_BYTES_PER_S
    busy_s = row.local_batch / row.samples_per_s - step_s
    fwd_s, bwd_s = busy_s / 3, busy_s * 2 / 3
    buckets = ddp_buckets(layers, fwd_s, bwd_s)
    return Profile(
        schema=1,
        provenance=imported(row.source, "published figures"),
        env=Env(gpu_type="v100", gpu_count=1),
        model=Model(
            name=row.name,
            params=params,
            dtype="float32",
            grad_bytes=params * 4,
            local_batch=row.local_batch,
            optimizer=row.optimizer,
            buckets=buckets,
            peak_memory_bytes=None,
        ),
        compute=Compute(fwd_s, bwd_s, step_s, fwd_s + bwd_s - buckets[0].ready_s, None),
        tiers={},
    )
