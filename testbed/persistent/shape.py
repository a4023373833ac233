"""What a persistent cluster is made of, in the few numbers that users give."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dally.errors import InputError
from dally.hosts.network_spec import NetworkSpec, Rack
from slurm_plugin.local_cluster.slurm_files import LabSpec

_MOST_HOSTS = 64
"""Each is a slurmd that wants a port, memory and, when ranks run, a share of the cores."""


@dataclass(frozen=True, slots=True)
class LabShape:
    """Racks of hosts and their links.

    Attributes:
        racks: Hosts of each rack.
        gpus: GPUs of each host; nothing is behind them.
        rate_bps: Of each host's link, each way, bits per second.
        uplink_bps: Of each rack's link to the core.
        gpu_types: Of the GPUs, one for all hosts or one for each rack.

    Raises:
        InputError: A number is out of range.
    """

    racks: tuple[int, ...] = (2, 2, 2, 2)
    gpus: int = 2
    rate_bps: float = 1e9
    uplink_bps: float = 200e6
    gpu_types: tuple[str, ...] = ("h100",)

    def __post_init__(self) -> None:
        if not 0 < sum(self.racks) <= _MOST_HOSTS:
            raise InputError(f"the racks have {sum(self.racks)} hosts, must be 1 to {_MOST_HOSTS} in all")
        self.spec(Path("/"))  # refuses what Slurm or the network cannot be

    def spec(self, folder: Path, port: int = 0) -> LabSpec:
        """The lab in a folder; its ports are found unless given."""
        racks = tuple(Rack(hosts, self.rate_bps, self.uplink_bps) for hosts in self.racks)
        preload = find_spec("torch") is not None
        return LabSpec(
            folder,
            gpus=self.gpus,
            gpu_types=self.gpu_types,
            port=port,
            network=NetworkSpec(racks),
            preload=preload,
        )

    def shown(self) -> str:
        """What it is, in words."""
        return (
            f"{sum(self.racks)} nodes of {self.gpus} GPUs ({', '.join(self.gpu_types)}) "
            f"in {len(self.racks)} racks, "
            f"{shown_rate(self.rate_bps)} a node, {shown_rate(self.uplink_bps)} between racks"
        )

    def options(self) -> str:
        """The options that ask for it."""
        return (
            f"--racks {','.join(map(str, self.racks))} --gpus {self.gpus} "
            f"--gpu-types {','.join(self.gpu_types)} "
            f"--rate {_option_rate(self.rate_bps)} --uplink {_option_rate(self.uplink_bps)}"
        )


def shown_rate(rate_bps: float) -> str:
    """A rate in words."""
    return f"{rate_bps / 1e9:g} Gb/s" if rate_bps >= 1e9 else f"{rate_bps / 1e6:g} Mb/s"


def _option_rate(rate_bps: float) -> str:
    return shown_rate(rate_bps).replace(" ", "").removesuffix("/s")
