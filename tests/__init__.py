"""The tests; several run at once, so none computes on more than one thread."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by numpy and torch when they are imported
