"""The user's own program: what is started of it on every machine of a run, and what it is told of the run."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dally.hosts.processes import Command
from profiler.launch.rank_commands import draw_port
from profiler.spec import PlannedRun

PLACEHOLDERS = ("machines", "rank", "gpus", "world", "master", "port")
"""What the command may name in braces: machines, the number of this one from 0, GPUs on each, GPUs of all,
where the ranks meet and at which port."""

_PLACEHOLDER = re.compile(rf"\{{({'|'.join(PLACEHOLDERS)})\}}")

_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_OF_TORCHRUN = {
    "--nproc-per-node": "{gpus}",
    "--nnodes": "{machines}",
    "--node-rank": "{rank}",
    "--master-addr": "{master}",
    "--master-port": "{port}",
    "--rdzv-endpoint": "{master}:{port}",
}
"""Its options that a run decides about, and what each takes there."""


@dataclass(frozen=True, slots=True)
class UserProgram:
    """A command that is started once on every machine.

    Attributes:
        argv: May hold placeholders. What it tells torchrun of machines, ranks and where they meet gives way
            to what a run has.
    """

    argv: tuple[str, ...]

    def commands(self, run: PlannedRun, address: str) -> tuple[Command, ...]:
        """One for each machine, the first one first.

        Besides the variables that most launchers read there are those by which torchrun takes its options
        where the command leaves them out (PET_*).

        Args:
            run: What is launched.
            address: Of the first machine, where the ranks meet.
        """
        shape, port = run.shape, str(draw_port())
        argv = _for_any_run(self.argv)
        shared = {"NNODES": str(shape.nodes), "NPROC_PER_NODE": str(shape.gpus_per_node)}
        shared |= {"MASTER_ADDR": address, "MASTER_PORT": port}
        commands = []
        for rank, host in enumerate(run.hosts):
            told = {**shared, "NODE_RANK": str(rank)}
            env = {
                **told,
                **{f"PET_{name}": value for name, value in told.items()},
                "PYTHONUNBUFFERED": "1",  # a line is timed by when it comes
            }
            values = (shape.nodes, rank, shape.gpus_per_node, shape.gpus, address, port)
            filled = _filled(argv, dict(zip(PLACEHOLDERS, map(str, values), strict=True)))
            commands.append(Command(f"machine {rank}, {host}", filled, env, host))
        return tuple(commands)


def _for_any_run(argv: Sequence[str]) -> tuple[str, ...]:
    """The command with placeholders in place of what its torchrun, if it has one, is told of one run."""
    told = [number for number, item in enumerate(argv) if item.rpartition("/")[2] in _TORCHRUN]
    if not told:
        return tuple(argv)
    found, items = [*argv[: told[0] + 1]], iter(argv[told[0] + 1 :])
    for item in items:
        name, equals, _ = item.partition("=")
        name = name.replace("_", "-")
        if name in _OF_TORCHRUN:
            found += [f"{name}={_OF_TORCHRUN[name]}"]
            if not equals:
                next(items, None)
        elif item != "--standalone":
            found.append(item)
        if item.endswith(".py"):  # what follows is the script's
            break
    return (*found, *items)


def _filled(argv: Sequence[str], facts: Mapping[str, str]) -> tuple[str, ...]:
    """The arguments with the facts in place of placeholders; other braces stay."""
    return tuple(_PLACEHOLDER.sub(lambda found: facts[found[1]], item) for item in argv)
