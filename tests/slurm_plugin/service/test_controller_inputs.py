"""The part of the cluster that Dally schedules."""

from pathlib import Path

import pytest

from dally.errors import InputError
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import SlurmNode
from slurm_plugin.service.controller_inputs import cut, managed_gpus, stamp_of


def node(name: str, gpus: int, *partitions: str) -> SlurmNode:
    return SlurmNode(name, True, "idle", gpus, 0, partitions)


def test_nodes_with_gpus_in_one_of_the_partitions_are_managed() -> None:
    nodes = [node("a", 8, "gpu", "all"), node("b", 4, "all"), node("c", 0, "gpu"), node("d", 2)]
    assert managed_gpus(nodes, ["gpu", "big"]) == {"a": 8}


def test_all_of_a_cluster_is_the_cluster() -> None:
    whole = racks([[8, 8], [8, 4]], depth=4)
    assert cut(whole, {machine.name: machine.gpus for machine in whole.machines}) == whole


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_part_keeps_its_levels_and_names_and_counts_its_own_gpus(depth: int) -> None:
    part = cut(racks([[8, 8], [8, 4], [8]], depth=depth), {"r0m1": 8, "r1m1": 4})
    assert [machine.name for machine in part.machines] == ["r0m1", "r1m1"]
    assert part.levels == racks([[8]], depth=depth).levels
    assert (part.gpus, part.root.name) == (12, "core")
    for index, domain in enumerate(part.domains):
        assert domain.index == index
        assert all(part.domains[child].parent == index for child in domain.children)
        assert domain.gpus == sum(part.domains[child].gpus for child in domain.children) or not domain.level


def test_machines_of_different_racks_stay_apart() -> None:
    part = cut(racks([[8, 8], [8, 8]]), {"r0m0": 8, "r1m0": 8, "r1m1": 8})
    assert part.level_of(((0, 8), (1, 8))) == 2
    assert part.level_of(((1, 8), (2, 8))) == 1


def test_a_machine_has_as_many_gpus_as_slurm_says() -> None:
    part = cut(racks([[8, 8]]), {"r0m0": 6, "r0m1": 8})
    assert [machine.gpus for machine in part.machines] == [6, 8]
    assert part.gpus == 14


def test_a_cluster_without_managed_nodes_is_refused() -> None:
    with pytest.raises(InputError, match="cluster test has no node of Dally's partitions"):
        cut(racks([[8]]), {"other": 8})


def test_a_stamp_changes_with_each_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("a")
    stamps = [stamp_of(str(tmp_path))]
    for name in ("gres.conf", "topology.conf", "topology.yaml", "slurm.conf"):
        (tmp_path / name).write_text("changed")
        stamps.append(stamp_of(str(tmp_path)))
    assert len(set(stamps)) == 5
    (tmp_path / "plugstack.conf").write_text("none of ours")
    assert stamp_of(str(tmp_path)) == stamps[-1]
    assert stamp_of(str(tmp_path / "topology.conf")) == stamps[-1]


def test_a_shipped_cluster_has_a_stamp_that_stays() -> None:
    assert stamp_of("physical-64") == stamp_of("physical-64")
