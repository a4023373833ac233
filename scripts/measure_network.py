"""Writes the tables of docs/local-network.md: `python -m scripts.measure_network`, about a minute."""

from collections.abc import Iterator
from pathlib import Path

import click

from analysis.studies.common import StudyCommand, publish
from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import NetworkSpec, Rack
from dally.markdown import table
from tests.dally.hosts.network_probe import round_trip_s, together_bps, transfer

DOCUMENT = Path(__file__).parent.parent / "docs" / "local-network.md"
RATES_BPS = (200e6, 500e6, 1e9, 2e9)
UPLINK_BPS = 1e9
DURATION_S = 3.0
"""How long a transfer takes at its rate."""

UNSHAPED_BYTES = 6_000_000_000


@click.command(cls=StudyCommand)
def main() -> None:
    """Measure links between local hosts, and rewrite the generated sections."""
    publish([("links", link_table()), ("uplink", uplink_table())], DOCUMENT)


def link_table() -> str:
    """One row for each rate: what two hosts of a rack get."""
    header = ["link", "one way", "both ways, each", "of the rate", "round trip of 64 bytes"]
    return table(header, [link_row(rate_bps) for rate_bps in RATES_BPS] + [unshaped_row()])


def link_row(rate_bps: float) -> list[str]:
    """What two hosts get whose links have a rate."""
    payload_bytes = int(rate_bps * DURATION_S / 8)
    with LocalNetwork(NetworkSpec((Rack(2, rate_bps),))) as network:
        one_way, both_ways, trip_s = measured(network, payload_bytes)
    shares = f"{one_way / rate_bps:.1%} and {both_ways / rate_bps:.1%}"
    return [shown(rate_bps), shown(one_way), shown(both_ways), shares, f"{trip_s * 1e6:.0f} µs"]


def unshaped_row() -> list[str]:
    """What two hosts get whose links have none."""
    with LocalNetwork(NetworkSpec((Rack(2),))) as network:
        one_way, both_ways, trip_s = measured(network, UNSHAPED_BYTES)
    return ["unshaped", shown(one_way), shown(both_ways), "", f"{trip_s * 1e6:.0f} µs"]


def measured(network: LocalNetwork, payload_bytes: int) -> tuple[float, float, float]:
    """Bits per second one way and each way at once, and the round trip in seconds."""
    there, back = ("r1h1", "r1h2"), ("r1h2", "r1h1")
    one_way = together_bps(transfer(network, [there], payload_bytes))
    both_ways = together_bps(transfer(network, [there, back], payload_bytes)) / 2
    return one_way, both_ways, round_trip_s(network, there)


def uplink_table() -> str:
    """One row for each number of pairs that share an uplink of their hosts' rate."""
    rack = Rack(2, UPLINK_BPS, UPLINK_BPS)
    with LocalNetwork(NetworkSpec((rack, rack))) as network:
        return table(["pairs", "together", "each", "round trip of 64 bytes"], list(uplink_rows(network)))


def uplink_rows(network: LocalNetwork) -> Iterator[list[str]]:
    """What one pair and two pairs across the racks get."""
    pairs = [("r1h1", "r2h1"), ("r1h2", "r2h2")]
    trip = f"{round_trip_s(network, pairs[0]) * 1e6:.0f} µs"
    for count in (1, 2):
        done = transfer(network, pairs[:count], int(UPLINK_BPS * DURATION_S / 8 / count))
        each = ", ".join(shown(together_bps([one])) for one in done)
        yield [str(count), shown(together_bps(done)), each, trip]


def shown(rate_bps: float) -> str:
    """A rate for people."""
    return f"{rate_bps / 1e9:.3g} Gb/s" if rate_bps >= 1e9 else f"{rate_bps / 1e6:.3g} Mb/s"


if __name__ == "__main__":
    main()
