"""Fixtures for tests of the profiler: a real Slurm under each topology plugin that it has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.errors import DallyError, InputError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LabSpec, TopologyPlugin


@pytest.fixture(params=TopologyPlugin, ids=lambda plugin: plugin.name.lower())
def lab_of_any_topology(
    request: pytest.FixtureRequest, lab_folder: Path, users: tuple[str, ...]
) -> Iterator[LocalSlurm]:
    """A fresh cluster as `lab` is one, under topology/tree, topology/block and no plugin."""
    lab = LocalSlurm(LabSpec(lab_folder, topology=request.param))
    try:
        lab.start()
    except InputError as error:  # this Slurm does not have the plugin
        pytest.skip(str(error))
    except DallyError as error:
        pytest.fail(str(error), pytrace=False)
    yield lab
    lab.stop()
