import re
from dataclasses import replace

import pytest

from profiler.rank.peers import Peer, PeerError, address_among, check_peers, host_name

FIRST = Peer(
    rank=0,
    host="n1",
    machine="m1",
    stack="m1/1",
    address="10.0.0.1",
    torch="2.13.0",
    dally="0.1.0",
    backend="nccl",
    gpu_type="A100",
    gpu_uuid="GPU-1",
    clock_s=1000.0,
)
SECOND = replace(
    FIRST, rank=1, host="n2", machine="m2", stack="m2/1", address="10.0.0.2", gpu_uuid="GPU-2", clock_s=1000.9
)


def test_ranks_that_have_the_same_fit() -> None:
    check_peers([FIRST, SECOND])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            replace(SECOND, torch="2.4.1"),
            "torch version differs: rank 0 on n1 has 2.13.0, rank 1 on n2 has 2.4.1; ",
        ),
        (
            replace(SECOND, dally="0.2.0"),
            "dally version differs: rank 0 on n1 has 0.1.0, rank 1 on n2 has 0.2.0; ",
        ),
        (replace(SECOND, backend="gloo"), "backend differs: rank 0 on n1 has nccl, rank 1 on n2 has gloo; "),
        (replace(SECOND, gpu_type=None), "GPU type differs: rank 0 on n1 has A100, rank 1 on n2 has none; "),
        (
            replace(SECOND, clock_s=1003.5),
            "clocks differ: that of rank 1 on n2 is +3.5 s from that of rank 0 on n1; ",
        ),
        (
            replace(SECOND, clock_s=990.0),
            "clocks differ: that of rank 1 on n2 is -10.0 s from that of rank 0 on n1; ",
        ),
    ],
)
def test_ranks_that_differ_are_refused_with_both_names_and_values(second: Peer, message: str) -> None:
    with pytest.raises(PeerError, match=re.escape(message)) as refused:
        check_peers([FIRST, second])
    assert "\n" not in str(refused.value)


def test_on_one_host_the_address_is_the_one_the_ranks_met_at() -> None:
    same_host = replace(SECOND, stack=FIRST.stack)
    assert address_among([FIRST, same_host], 0) == "10.0.0.1"


def test_among_several_hosts_the_address_is_that_on_the_way_to_another() -> None:
    first = replace(FIRST, address="127.0.1.1")
    second = replace(SECOND, address="127.0.0.1")
    assert address_among([first, second], 0) == "127.0.0.1"


def test_a_host_may_be_given_another_name_than_its_machine_has() -> None:
    assert host_name({"DALLY_HOST": "r1h2"}) == "r1h2"
    assert host_name({})


def test_two_ranks_of_a_host_on_one_gpu_are_refused() -> None:
    beside = replace(FIRST, rank=1, clock_s=1000.1)
    with pytest.raises(PeerError, match=r"^rank 0 on n1 and rank 1 are on one GPU, GPU-1; "):
        check_peers([FIRST, beside])


def test_hosts_inside_one_machine_may_share_its_gpu_and_cpus_are_shared_anyway() -> None:
    check_peers([FIRST, replace(FIRST, rank=1, stack="m1/2")])
    check_peers([replace(FIRST, gpu_uuid=None), replace(FIRST, rank=1, gpu_uuid=None)])
