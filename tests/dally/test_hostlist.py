"""Host lists expand as Slurm's do, whatever ClusterShell's own files say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.hostlist import expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("gpu[001-003,020]", ["gpu001", "gpu002", "gpu003", "gpu020"]),
        ("b[9-11],a1, c[2,1]", ["b9", "b10", "b11", "a1", "c1", "c2"]),
        ("r[1-2]-n[3-4]", ["r1-n3", "r1-n4", "r2-n3", "r2-n4"]),
        ("/dev/nvidia[0-1],10.0.0.1", ["/dev/nvidia0", "/dev/nvidia1", "10.0.0.1"]),
    ],
)
def test_a_host_list_expands_in_order(text: str, names: list[str]) -> None:
    assert list(expand(text)) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "a,,b", "n[1-", "n1-3]", "n[3-1]", "n[]", "n[a-c]", "n[1-99999999999]", "n1,n1", "n[1-3],n2"],
)
def test_a_malformed_host_list_is_named(text: str) -> None:
    with pytest.raises(InputError, match="host list") as caught:
        expand(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["@all", "@*", "*", "a!b", "a&b", "a^b", "n[1-4/2]", "a b"])
def test_groups_and_set_operators_of_clustershell_are_shut_out(text: str) -> None:
    with pytest.raises(InputError, match="is not a host list"):
        expand(text)


@pytest.mark.parametrize("text", ["v[1-99999999]", "n[0-9][0-9][0-9][0-9][0-9]", "n[1-40000],m[1-40000]"])
def test_a_list_of_more_hosts_than_slurm_can_have_is_refused_before_any_is_named(text: str) -> None:
    with pytest.raises(InputError, match="stands for more than 65,536 names"):
        expand(text)
    assert len(expand("n[1-65536]")) == 65_536


def test_folding_keeps_an_order_that_ranges_cannot() -> None:
    assert fold(["n2", "n1"]) == "n2,n1"
    assert fold(["n1", "n2", "n3"]) == "n[1-3]"


def test_a_name_that_is_no_host_is_not_folded() -> None:
    with pytest.raises(InputError, match="'a b' cannot stand"):
        fold(["a b"])


names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,4}|n[0-9]{1,3}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=12, unique=True))
def test_expanding_undoes_folding(hosts: list[str]) -> None:
    assert list(expand(fold(hosts))) == hosts
