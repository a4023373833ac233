"""Who the ranks are, where they stand, and whether they fit together."""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import dally
from dally.errors import DallyError
from profiler.rank.exchange import RankExchange
from workloads.group import Group

CLOCK_LIMIT_S = 1.0
"""How far the clocks of two hosts may be apart."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ANY_PORT = 9


class PeerError(DallyError):
    """The ranks do not fit together, or one of them is lost."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One rank.

    Attributes:
        rank: Its number.
        host: Name of its host.
        machine: Id of the running kernel: network namespaces of one machine share its CPUs.
        stack: Id of its network stack: what counts as a host of its own on the network.
        address: From which it sends to rank 0; on rank 0's host, what the given name of the host means there.
        torch: Version of torch.
        dally: Version of this package.
        backend: What carries its collectives.
        gpu_type: Name of its GPU; None without.
        gpu_uuid: Which GPU it is; None without.
        clock_s: Its clock at the moment of meeting, seconds since 1970.
    """

    rank: int
    host: str
    machine: str
    stack: str
    address: str
    torch: str
    dally: str
    backend: str
    gpu_type: str | None
    gpu_uuid: str | None
    clock_s: float


def meet_peers(group: Group, exchange: RankExchange, master: str) -> list[Peer]:
    """All ranks, by rank, with their clocks read at the same moment.

    Args:
        group: This rank's group.
        exchange: With the others.
        master: The address or name of rank 0's host, as all ranks were given it.
    """
    gpu = torch.cuda.get_device_properties(group.device) if group.device.type == "cuda" else None
    machine = _BOOT_ID.read_text().strip()
    stack = f"{machine}/{os.stat('/proc/self/ns/net').st_ino}"
    host, address = host_name(os.environ), address_towards(master)
    exchange.barrier()
    clock_s = time.time()
    return exchange.gather(
        Peer(
            group.rank,
            host,
            machine,
            stack,
            address,
            torch.__version__,
            dally.__version__,
            group.backend,
            gpu.name if gpu else None,
            f"GPU-{gpu.uuid}" if gpu else None,
            clock_s,
        )
    )


def host_name(env: Mapping[str, str]) -> str:
    """This host's name: DALLY_HOST, which hosts inside one machine are given, else the machine's."""
    return env.get("DALLY_HOST") or socket.gethostname()


def check_peers(peers: Sequence[Peer]) -> None:
    """Refuse ranks that would not measure the same thing.

    Args:
        peers: By rank; all are compared with the first.

    Raises:
        PeerError: Two differ; the message names both with what they have.
    """
    first = peers[0]
    for peer in peers[1:]:
        for what, ours, theirs in (
            ("torch version", first.torch, peer.torch),
            ("dally version", first.dally, peer.dally),
            ("backend", first.backend, peer.backend),
            ("GPU type", first.gpu_type, peer.gpu_type),
        ):
            if ours != theirs:
                raise PeerError(
                    f"{what} differs: {_name(first)} has {ours or 'none'}, {_name(peer)} has "
                    f"{theirs or 'none'}; all ranks need the same"
                )
        # Two ranks of one host on one GPU would each be half as fast; hosts inside one machine may share it.
        for other in peers[: peer.rank]:
            if peer.gpu_uuid and (other.gpu_uuid, other.stack) == (peer.gpu_uuid, peer.stack):
                raise PeerError(
                    f"{_name(other)} and rank {peer.rank} are on one GPU, {peer.gpu_uuid}; start no more "
                    "ranks on a host than it has GPUs"
                )
        apart_s = peer.clock_s - first.clock_s
        if abs(apart_s) > CLOCK_LIMIT_S:
            raise PeerError(
                f"clocks differ: that of {_name(peer)} is {apart_s:+.1f} s from that of {_name(first)}; "
                f"at most {CLOCK_LIMIT_S:g} s is valid, set them (chrony, ntpd)"
            )


def address_towards(host: str) -> str:
    """The address from which this machine would send to `host`: connecting a UDP socket sends nothing."""
    family, kind, _, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])


def address_among(peers: Sequence[Peer], rank: int) -> str:
    """The address of a rank on the network between the hosts; called on that rank.

    A host's own name often means a loopback address there (127.0.1.1 on Debian), so rank 0's host asks for
    the way to another one.
    """
    own = peers[rank]
    others = [peer.address for peer in peers if peer.stack != own.stack]
    return address_towards(others[0]) if others else own.address


def _name(peer: Peer) -> str:
    return f"rank {peer.rank} on {peer.host}"
