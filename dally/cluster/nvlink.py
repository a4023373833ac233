"""NVLink beyond one machine: what connects GPUs of types that are sold in racks with NVLink switches."""

from dataclasses import dataclass

from dally.cluster.topology import Link

_HOP_S = 1e-6
_OUTSIDE_HOP_S = 2e-6


@dataclass(frozen=True, slots=True)
class NvlinkRack:
    """The links of GPUs whose machines share NVLink within a rack; bits per second and way, for one GPU.

    Attributes:
        gpus: Most GPUs in one NVLink domain.
        nvlink_bps: To any other GPU of the rack.
        nic_bps: To other racks.
    """

    gpus: int
    nvlink_bps: float
    nic_bps: float

    @property
    def fabric(self) -> Link:
        """What connects the GPUs of one machine."""
        return Link(self.nvlink_bps, _HOP_S)

    def uplink(self, gpus: int) -> Link:
        """Leads from a machine with so many GPUs to the others of its rack: each GPU has its own NVLink."""
        return Link(gpus * self.nvlink_bps, _HOP_S)

    def outside(self, gpus: int) -> Link:
        """Leads out of a rack, for a gang with one such machine there: that machine's network cards."""
        return Link(gpus * self.nic_bps, _OUTSIDE_HOP_S)


# NVIDIA's data sheets of GB200 NVL72 and GB300 NVL72: 72 GPUs, 130 TB/s of NVLink in all, so 1.8 TB/s a GPU,
# both ways together; a network card for each GPU, ConnectX-7 (400 Gb/s) or ConnectX-8 (800 Gb/s).
_RACKS = {"gb200": NvlinkRack(72, 7.2e12, 400e9), "gb300": NvlinkRack(72, 7.2e12, 800e9)}


def nvlink_rack(gpu_type: str) -> NvlinkRack | None:
    """The rack that GPUs of a type such as `gb200` or `nvidia_gb200` are sold in; None if they need none."""
    return next((rack for name, rack in _RACKS.items() if name in gpu_type.lower()), None)
