"""The set `realistic`: six models on V100 in fp32, with true gradient sizes and DDP's buckets.

ResNet-50 and BERT-large have published training throughputs of one V100. The other compute times are derived
from the model's work at the rate that ResNet-50 reaches, so take them as right within a factor of two.

Gradient buckets are laid out from the layers, without torch. Architectures: VGG-11 (Simonyan and Zisserman
2015), AlexNet (Krizhevsky 2014, one tower), ResNet-18 and -50 (He et al. 2016), MobileNetV3-Small (Howard et
al. 2019), each for 1000 classes and 224 x 224 pixels, and BERT-large (Devlin et al. 2019) without a head, 512
tokens. Tests pin their parameter counts and work to the published ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dally.profiles.imports.imported import imported
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
class TensorGroup:
    """Tensors trained together.

    Attributes:
        params: Elements of each parameter tensor, in registration order.
        macs: Multiply-accumulates of one sample's forward pass.
    """

    params: tuple[int, ...]
    macs: float


def _conv(
    inputs: int, outputs: int, kernel: int, size: int, groups: int = 1, bias: bool = False
) -> TensorGroup:
    """A convolution with `size` x `size` outputs, and its bias or else its batch norm."""
    weights = inputs // groups * outputs * kernel**2
    return TensorGroup((weights, outputs) if bias else (weights, outputs, outputs), float(weights * size**2))


def _dense(inputs: int, outputs: int, uses: int = 1) -> TensorGroup:
    return TensorGroup((inputs * outputs, outputs), float(inputs * outputs * uses))


def _vgg11() -> Iterator[TensorGroup]:
    channels, sizes = (64, 128, 256, 256, 512, 512, 512, 512), (224, 112, 56, 56, 28, 28, 14, 14)
    for inputs, outputs, size in zip((3, *channels), channels, sizes, strict=False):
        yield _conv(inputs, outputs, 3, size, bias=True)
    yield from (_dense(512 * 7 * 7, 4096), _dense(4096, 4096), _dense(4096, 1000))


def _alexnet() -> Iterator[TensorGroup]:
    yield _conv(3, 64, 11, 55, bias=True)
    yield _conv(64, 192, 5, 27, bias=True)
    for inputs, outputs in ((192, 384), (384, 256), (256, 256)):
        yield _conv(inputs, outputs, 3, 13, bias=True)
    yield from (_dense(256 * 6 * 6, 4096), _dense(4096, 4096), _dense(4096, 1000))


def _resnet18() -> Iterator[TensorGroup]:
    yield _conv(3, 64, 7, 112)
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        size = 56 >> stage
        for _ in range(2):
            yield from (_conv(inputs, outputs, 3, size), _conv(outputs, outputs, 3, size))
            if inputs != outputs:
                yield _conv(inputs, outputs, 1, size)
            inputs = outputs
    yield _dense(512, 1000)


def _resnet50() -> Iterator[TensorGroup]:
    """Version 1.5: the 3 x 3 convolution of a block has the stride."""
    yield _conv(3, 64, 7, 112)
    inputs = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        size = 56 >> stage
        for block in range(blocks):
            before = size * 2 if stage and not block else size
            yield from (_conv(inputs, width, 1, before), _conv(width, width, 3, size))
            yield _conv(width, width * 4, 1, size)
            if not block:
                yield _conv(inputs, width * 4, 1, size)
            inputs = width * 4
    yield _dense(2048, 1000)


_MOBILE_BLOCKS = (
    (3, 16, 16, 8, 56),
    (3, 72, 24, 0, 28),
    (3, 88, 24, 0, 28),
    (5, 96, 40, 24, 14),
    (5, 240, 40, 64, 14),
    (5, 240, 40, 64, 14),
    (5, 120, 48, 32, 14),
    (5, 144, 48, 40, 14),
    (5, 288, 96, 72, 7),
    (5, 576, 96, 144, 7),
    (5, 576, 96, 144, 7),
)
"""MobileNetV3-Small's blocks: kernel, expanded and output channels, squeezed ones (0: none), output size."""


def _mobilenetv3() -> Iterator[TensorGroup]:
    yield _conv(3, 16, 3, 112)
    inputs, before = 16, 112
    for kernel, expanded, outputs, squeezed, size in _MOBILE_BLOCKS:
        if expanded != inputs:
            yield _conv(inputs, expanded, 1, before)
        yield _conv(expanded, expanded, kernel, size, groups=expanded)
        if squeezed:
            yield from (_dense(expanded, squeezed), _dense(squeezed, expanded))
        yield _conv(expanded, outputs, 1, size)
        inputs, before = outputs, size
    yield _conv(96, 576, 1, 7)
    yield from (_dense(576, 1024), _dense(1024, 1000))


def _bert_large(tokens: int = 512, width: int = 1024) -> Iterator[TensorGroup]:
    yield TensorGroup((30522 * width, 512 * width, 2 * width, width, width), 0.0)
    for _ in range(24):
        yield from (_dense(width, width, tokens) for _ in range(3))
        attention = _dense(width, width, tokens)
        yield TensorGroup((*attention.params, width, width), attention.macs + 2 * tokens**2 * width)
        yield _dense(width, 4 * width, tokens)
        output = _dense(4 * width, width, tokens)
        yield TensorGroup((*output.params, width, width), output.macs)
    yield _dense(width, width)


LAYERS: Mapping[str, tuple[TensorGroup, ...]] = {
    "vgg11": tuple(_vgg11()),
    "alexnet": tuple(_alexnet()),
    "resnet18": tuple(_resnet18()),
    "resnet50": tuple(_resnet50()),
    "mobilenetv3": tuple(_mobilenetv3()),
    "bert-large": tuple(_bert_large()),
}
"""The layers of each model, in forward order."""


def _derived_rate(name: str, efficiency: float = 1.0) -> float:
    """Samples/s at ResNet-50's published rate of multiply-accumulates times an efficiency."""
    return _RESNET50_SAMPLES_PER_S * _macs("resnet50") / _macs(name) * efficiency


def _macs(name: str) -> float:
    return sum(layer.macs for layer in LAYERS[name])


def realistic_profiles() -> tuple[Profile, ...]:
    """The profiles of the set."""
    mobile_source = f"{_DERIVED}, times {_MOBILE_EFFICIENCY:g} for depthwise convolutions (assumed)"
    mobile_rate = _derived_rate("mobilenetv3", _MOBILE_EFFICIENCY)
    return (
        _profile("vgg11", 64, "sgd", 5, _derived_rate("vgg11"), _DERIVED),
        _profile("alexnet", 256, "sgd", 5, _derived_rate("alexnet"), _DERIVED),
        _profile("resnet18", 128, "sgd", 5, _derived_rate("resnet18"), _DERIVED),
        _profile("resnet50", 128, "sgd", 5, _RESNET50_SAMPLES_PER_S, _PUBLISHED_RESNET50),
        _profile("mobilenetv3", 256, "sgd", 5, mobile_rate, mobile_source),
        _profile("bert-large", 7, "adam", 7, _BERT_SAMPLES_PER_S, _PUBLISHED_BERT),
    )


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


def _profile(
    name: str, local_batch: int, optimizer: str, memory_passes: int, samples_per_s: float, source: str
) -> Profile:
    """Backward takes two thirds of forward and backward; the optimizer is bound by memory bandwidth.

    Args:
        name: The model.
        local_batch: Samples of one GPU.
        optimizer: Its name.
        memory_passes: How often it passes over the parameters in memory.
        samples_per_s: The model's rate on one GPU.
        source: Where that comes from.
    """
    layers = LAYERS[name]
    params = sum(sum(layer.params) for layer in layers)
    step_s = memory_passes * params * 4 / _HBM_BYTES_PER_S
    busy_s = local_batch / samples_per_s - step_s
    fwd_s, bwd_s = busy_s / 3, busy_s * 2 / 3
    buckets = ddp_buckets(layers, fwd_s, bwd_s)
    return Profile(
        schema=1,
        provenance=imported(source, "published figures"),
        env=Env(gpu_type="v100", gpu_count=1),
        model=Model(
            name=name,
            params=params,
            dtype="float32",
            grad_bytes=params * 4,
            local_batch=local_batch,
            optimizer=optimizer,
            buckets=buckets,
            peak_memory_bytes=None,
        ),
        compute=Compute(fwd_s, bwd_s, step_s, fwd_s + bwd_s - buckets[0].ready_s, None),
        tiers={},
    )
