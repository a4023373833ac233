"""Writes scikit-learn's handwritten digits as samples: `python -m workloads.digits FILE.npz [moved]`.

1,797 images of 8 x 8 grey pixels by 43 people, the test set of "Optical recognition of handwritten digits"
(E. Alpaydin and C. Kaynak, UCI Machine Learning Repository 1998). A fifth, drawn at random, is held out.
With `moved`, each lies somewhere on a noisy ground of 16 x 16: harder to tell, and for a larger net.
"""

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads.local_data import HELD_OUT

_HELD_OUT = 360
_DARKEST = 16
_SEED = 0
_GROUND, _NOISE = 16, 96
"""Pixels on a side, and less than so much each of them gets at random, of 255."""


def write_digits(path: Path, moved: bool = False) -> None:
    """Write all images, inputs of shape (samples, 1, 8, 8), those held out under names of their own.

    Args:
        path: Of the file.
        moved: Whether they are those on a larger ground, of shape (samples, 1, 16, 16).
    """
    from sklearn.datasets import load_digits  # noqa: PLC0415 (it takes a second to load)

    images, classes = load_digits(return_X_y=True)
    inputs = (images.reshape(-1, 1, 8, 8) * (255 / _DARKEST)).astype(np.uint8)
    if moved:
        inputs = _move(inputs)
    order = np.random.default_rng(_SEED).permutation(len(classes))
    held_out, rest = order[:_HELD_OUT], order[_HELD_OUT:]
    arrays = {
        "inputs": inputs[rest],
        "targets": classes[rest],
        f"{HELD_OUT}inputs": inputs[held_out],
        f"{HELD_OUT}targets": classes[held_out],
    }
    np.savez(path, **arrays)


def _move(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each image at a place of its own; the brighter of it and the noise shows."""
    random = np.random.default_rng(_SEED)
    count, side = len(images), images.shape[-1]
    ground = random.integers(0, _NOISE, (count, 1, _GROUND, _GROUND), np.uint8)
    places = random.integers(0, _GROUND - side + 1, (count, 2))
    for around, image, (top, left) in zip(ground, images, places, strict=True):
        window = around[:, top : top + side, left : left + side]
        np.maximum(window, image, out=window)
    return ground


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["moved"]):
        sys.exit("usage: python -m workloads.digits FILE.npz [moved]")
    write_digits(Path(sys.argv[1]), moved=len(sys.argv) == 3)
