"""What local networks may consist of, and how their parts are called."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.hosts.network_spec import NetworkSpec, Rack, burst_bytes, shaping_words

racks = st.lists(st.builds(Rack, st.integers(1, 12)), min_size=1, max_size=8).map(tuple)


@given(racks)
def test_names_and_addresses_are_all_different_and_in_one_network(entries: tuple[Rack, ...]) -> None:
    spec = NetworkSpec(entries)
    addresses = {ip_address(spec.address(host)) for host in spec.hosts}
    assert len(addresses) == len(set(spec.hosts)) == sum(rack.hosts for rack in entries)
    assert all(address in ip_network("10.0.0.0/8") for address in addresses)


def test_hosts_are_named_by_rack_and_number() -> None:
    spec = NetworkSpec((Rack(2), Rack(1)))
    assert spec.hosts_of == {"r1": ("r1h1", "r1h2"), "r2": ("r2h1",)}
    assert [spec.rack(host) for host in spec.hosts] == ["r1", "r1", "r2"]


@pytest.mark.parametrize("hosts", [0, -1, 251])
def test_a_rack_of_too_few_or_too_many_hosts_is_refused(hosts: int) -> None:
    with pytest.raises(InputError, match=f"a rack has {hosts} hosts, must be 1 to 250"):
        Rack(hosts)


@pytest.mark.parametrize("name", ["host_rate_bps", "uplink_rate_bps"])
@pytest.mark.parametrize("rate_bps", [0.0, -1e9, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(name: str, rate_bps: float) -> None:
    with pytest.raises(InputError, match=f"{name} is {rate_bps:g}, must be 1e3 to 1e12".replace("+", r"\+")):
        Rack(1, *([rate_bps] if name == "host_rate_bps" else [None, rate_bps]))


def test_a_network_without_racks_is_refused() -> None:
    with pytest.raises(InputError, match="has 0 racks, must be 1 to 250"):
        NetworkSpec(())


def test_an_unknown_host_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(InputError, match="unknown host 'r2h1'; valid: r1h1, r1h2"):
        NetworkSpec((Rack(2),)).address("r2h1")


def test_a_burst_below_a_frame_is_refused() -> None:
    with pytest.raises(InputError, match="burst_bytes is 1000, must be 1514 or more"):
        Rack(1, burst_bytes=1000)


def test_links_are_shaped_with_the_burst_of_their_rack() -> None:
    assert shaping_words(1e8, 32_768)[3:5] == ("burst", "32768")
    assert shaping_words(1e8)[3:5] == ("burst", str(burst_bytes(1e8)))


@given(st.floats(1e3, 1e12))
def test_a_burst_lasts_half_a_millisecond_and_is_never_below_256_kilobytes(rate_bps: float) -> None:
    assert burst_bytes(rate_bps) >= 256 * 1024
    assert burst_bytes(rate_bps) * 8 / rate_bps >= 0.5e-3
    assert burst_bytes(1e10) == 625_000
