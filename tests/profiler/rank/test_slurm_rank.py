from contextlib import nullcontext

import pytest

from profiler.rank.slurm_rank import SlurmRankError, set_rank
from workloads.settings import Backend


def task(node: str, local: int, *, ranks: int = 4) -> dict[str, str]:
    return {
        "SLURM_PROCID": "0",
        "SLURM_NTASKS": str(ranks),
        "SLURM_LOCALID": str(local),
        "SLURMD_NODENAME": node,
        "DALLY_RANK_HOSTS": "n3,n1",
    }


@pytest.mark.parametrize(("node", "local", "rank"), [("n3", 0, 0), ("n3", 1, 1), ("n1", 0, 2), ("n1", 1, 3)])
def test_a_rank_has_the_number_of_the_host_it_is_on_whatever_slurm_numbers_it(
    node: str, local: int, rank: int
) -> None:
    env = task(node, local)
    set_rank(env, Backend.GLOO)
    assert [env[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "DALLY_HOST")] == [
        str(rank),
        "4",
        str(local),
        node,
    ]


def test_a_rank_elsewhere_than_the_run_says_is_refused() -> None:
    with pytest.raises(SlurmRankError, match="Slurm put this rank on n2, but the run is on n3, n1"):
        set_rank(task("n2", 0), Backend.GLOO)
    with pytest.raises(SlurmRankError, match="put 3 or more of 4 ranks on n1"):
        set_rank(task("n1", 2), Backend.GLOO)
    with pytest.raises(SlurmRankError, match="of 5 ranks on n1"):
        set_rank(task("n1", 0, ranks=5), Backend.GLOO)


@pytest.mark.parametrize(
    ("node_id", "backend", "refused"),
    [("1", Backend.NCCL, True), ("2", Backend.NCCL, False), ("1", Backend.GLOO, False)],
)
def test_more_tasks_than_gpus_on_a_node_are_refused(node_id: str, backend: Backend, refused: bool) -> None:
    counts = {"SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_GPUS_ON_NODE": "1", "SLURM_NODEID": node_id}
    env = task("n1", 0) | counts
    with (
        pytest.raises(SlurmRankError, match=r"^2 tasks on n1 share 1 GPU; .*--ntasks-per-node=1$")
        if refused
        else nullcontext()
    ):
        set_rank(env, backend)


def test_outside_slurm_and_under_torchrun_nothing_changes() -> None:
    for env in ({"RANK": "3"}, {"SLURM_PROCID": "0"}, task("n1", 0) | {"RANK": "7"}):
        ranks = {name: env.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        set_rank(env, Backend.GLOO)
        assert {name: env.get(name) for name in ranks} == ranks
