import json

import pytest

from profiler.rank.network import interface_of, named_interface, network_facts, root_qdisc

ADDRESSES = json.loads(
    """[
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "ens3", "addr_info": [{"family": "inet", "local": "10.1.0.4"}, {"local": "fe80::1"}]},
    {"ifname": "ens3d1", "addr_info": [{"family": "inet", "local": "10.2.0.4"}]},
    {"ifname": "ib0"}
    ]"""
)
SHAPED = json.loads(
    """[
    {"kind": "htb", "handle": "1:", "root": true, "options": {"r2q": 10, "default": "0x10"}},
    {"kind": "tbf", "handle": "10:", "parent": "1:10", "options": {"rate": 25000000, "burst": 262125}}
    ]"""
)


def test_the_interface_is_the_one_with_the_address() -> None:
    assert interface_of(ADDRESSES, "10.2.0.4") == "ens3d1"
    assert interface_of(ADDRESSES, "10.9.0.4") is None


@pytest.mark.parametrize(
    ("names", "interface"),
    [
        ("ens", "ens3"),
        ("=ens3d1", "ens3d1"),
        ("=ens", None),
        ("ib,ens3d", "ens3d1"),
        ("^lo", None),
        ("", None),
    ],
)
def test_a_variable_names_interfaces_by_prefix_or_exactly(names: str, interface: str | None) -> None:
    assert named_interface(ADDRESSES, names) == interface


def test_the_queue_at_the_root_is_named_with_the_burst_of_its_shaper() -> None:
    assert root_qdisc(SHAPED) == ("htb", 262125)


def test_a_queue_without_a_burst_has_none() -> None:
    assert root_qdisc([{"kind": "noqueue", "root": True, "options": {}}]) == ("noqueue", None)
    assert root_qdisc([]) == (None, None)


def test_of_an_address_that_no_interface_has_nothing_is_known() -> None:
    facts = network_facts("192.0.2.77", {}, "GLOO_SOCKET_IFNAME")
    assert (facts.qdisc, facts.nic, facts.link_speed_bps) == (None, None, None)


def test_the_loopback_interface_of_this_machine_is_found() -> None:
    assert network_facts("127.0.0.1", {}, "GLOO_SOCKET_IFNAME").nic == "lo"
