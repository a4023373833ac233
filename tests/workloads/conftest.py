"""Fixtures for tests that train in this process: one thread, a group of one rank, a disk that is full."""

import resource
from collections.abc import Iterator

import pytest
import torch

from workloads.group import Group, join, leave
from workloads.settings import Backend


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """This process as the only rank, with gloo."""
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    yield join(Backend.GLOO, 30.0)
    leave()


@pytest.fixture
def short_files() -> Iterator[None]:
    """Files cannot grow beyond 1 MB, as if the disk were full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
