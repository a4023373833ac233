"""Ports of clusters on one machine: nobody else gets them, whatever listens at the moment."""

import socket

import pytest

from slurm_plugin.local_cluster import ports
from slurm_plugin.local_cluster.cluster import ClusterError
from slurm_plugin.local_cluster.ports import ReservedPorts


@pytest.fixture
def few_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for two blocks, between those of the clusters that run beside this test and the system's."""
    monkeypatch.setattr(ports, "_FIRST", 32_000)
    monkeypatch.setattr(ports, "_LAST", 32_200)


def test_ports_on_which_nobody_listens_yet_are_not_given_twice(few_ports: None) -> None:
    one, other = ReservedPorts(3), ReservedPorts(100)
    assert {one.first, other.first} == {32_000, 32_100}
    with pytest.raises(ClusterError, match="found no 1 free ports in a row between 32000 and 32200"):
        ReservedPorts(1)
    other.release()
    again = ReservedPorts(1)
    assert again.first == other.first
    for each in (one, again):
        each.release()


def test_more_ports_than_a_block_are_in_a_row(few_ports: None) -> None:
    many = ReservedPorts(101)
    assert many.first == 32_000
    with pytest.raises(ClusterError):
        ReservedPorts(1)
    many.release()


def test_ports_on_which_another_program_listens_are_not_given(few_ports: None) -> None:
    with socket.create_server(("", 32_050)):
        free = ReservedPorts(100)
        assert free.first == 32_100
        free.release()
