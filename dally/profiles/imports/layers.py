"""The layers of six well-known models, their parameters and work, to lay out gradient buckets without torch.

Architectures: VGG-11 (Simonyan and Zisserman 2015), AlexNet (Krizhevsky 2014, one tower), ResNet-18 and -50
(He et al. 2016), MobileNetV3-Small (Howard et al. 2019), each for 1000 classes and 224 x 224 pixels, and
BERT-large (Devlin et al. 2019) without a head, 512 tokens. Tests pin their parameter counts and work to the
published ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


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
