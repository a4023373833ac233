"""A rank's number under Slurm: by the node it is really on, in the order of hosts that the run says."""

import re
from collections.abc import MutableMapping

from dally.errors import DallyError
from dally.words import plural
from profiler.spec import RANK_HOSTS
from workloads.settings import Backend

_TASKS = re.compile(r"(\d+)(?:\(x(\d+)\))?")


class SlurmRankError(DallyError):
    """Slurm put ranks elsewhere than the run says, or gave them too few GPUs."""


def set_rank(env: MutableMapping[str, str], backend: Backend) -> None:
    """Under Slurm, set what torchrun would set, and DALLY_HOST; elsewhere do nothing.

    Args:
        env: The environment.
        backend: What carries the collectives.

    Raises:
        SlurmRankError: This rank is on none of the run's hosts, or on one with too many ranks or few GPUs.
    """
    if "SLURM_PROCID" not in env or "SLURM_NTASKS" not in env:
        return
    node = env.setdefault("DALLY_HOST", env.get("SLURMD_NODENAME", ""))
    if backend is Backend.NCCL:  # two ranks on one GPU would be measured as two GPUs
        counts = _TASKS.findall(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE", ""))
        tasks = [int(count) for count, times in counts for _ in range(int(times or 1))]
        index, gpus = int(env.get("SLURM_NODEID", "0")), int(env.get("SLURM_GPUS_ON_NODE", "0"))
        if gpus and index < len(tasks) and tasks[index] > gpus:
            raise SlurmRankError(
                f"{tasks[index]} tasks on {node} share {plural(gpus, 'GPU')}; each needs its own: ask "
                f"for --gres=gpu:{tasks[index]} or --ntasks-per-node={gpus}"
            )
    if not env.get(RANK_HOSTS) or "RANK" in env:
        return
    hosts = env[RANK_HOSTS].split(",")
    ranks, local = int(env["SLURM_NTASKS"]), int(env["SLURM_LOCALID"])
    per_host = ranks // len(hosts)
    if node not in hosts:
        raise SlurmRankError(f"Slurm put this rank on {node}, but the run is on {', '.join(hosts)}")
    if per_host * len(hosts) != ranks or local >= per_host:
        raise SlurmRankError(
            f"Slurm put {local + 1} or more of {ranks} ranks on {node}, but the run has equally many on each "
            f"of {', '.join(hosts)}"
        )
    env["RANK"] = str(hosts.index(node) * per_host + local)
    env["WORLD_SIZE"], env["LOCAL_RANK"] = str(ranks), str(local)
