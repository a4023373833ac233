"""Fixtures for tests of the profiler: a real Slurm under each topology plugin that it has."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.errors import DallyError, InputError
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec, TopologyPlugin


@pytest.fixture(params=TopologyPlugin, ids=lambda plugin: plugin.name.lower())
def slurm_of_any_topology(
    request: pytest.FixtureRequest, cluster_folder: Path, users: tuple[str, ...]
) -> Iterator[LocalSlurm]:
    """A fresh cluster as `local_slurm` is one, under topology/tree, topology/block and no plugin."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, topology=request.param))
    try:
        local_slurm.start()
    except InputError as error:  # this Slurm does not have the plugin
        pytest.skip(str(error))
    except DallyError as error:
        pytest.fail(str(error), pytrace=False)
    yield local_slurm
    local_slurm.stop()
