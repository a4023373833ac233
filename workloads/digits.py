"""Writes scikit-learn's handwritten digits as samples: `python -m workloads.digits FILE.npz`.

1,797 images of 8 x 8 grey pixels by 43 people, the test set of "Optical recognition of handwritten digits"
(E. Alpaydin and C. Kaynak, UCI Machine Learning Repository 1998). A fifth, drawn at random, is held out.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from workloads.local_data import HELD_OUT

_HELD_OUT = 360
_DARKEST = 16
_SEED = 0


def write_digits(path: Path) -> None:
    """Write all images, inputs of shape (samples, 1, 8, 8), those held out under names of their own."""
    images, classes = load_digits(return_X_y=True)
    inputs = (images.reshape(-1, 1, 8, 8) * (255 / _DARKEST)).astype(np.uint8)
    order = np.random.default_rng(_SEED).permutation(len(classes))
    held_out, rest = order[:_HELD_OUT], order[_HELD_OUT:]
    arrays = {
        "inputs": inputs[rest],
        "targets": classes[rest],
        f"{HELD_OUT}inputs": inputs[held_out],
        f"{HELD_OUT}targets": classes[held_out],
    }
    np.savez(path, **arrays)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m workloads.digits FILE.npz")
    write_digits(Path(sys.argv[1]))
