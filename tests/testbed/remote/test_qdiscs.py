"""Which queueing disciplines can be put back."""

import pytest

from dally.errors import InputError
from testbed.remote.qdiscs import Qdisc, in_words, settings, ways_back


def qdisc(kind: str, handle: str = "0:", **more: object) -> Qdisc:
    """What tc says of one."""
    return {
        "kind": kind,
        "handle": handle,
        "refcnt": 2,
        **({} if "parent" in more else {"root": True}),
        **more,
    }


MQ = [qdisc("mq"), qdisc("fq_codel", parent=":1"), qdisc("fq_codel", parent=":2")]


@pytest.mark.parametrize(
    "there",
    [[qdisc("noqueue")], [qdisc("fq_codel")], MQ, [*MQ, qdisc("clsact", "ffff:", parent="ffff:fff1")]],
)
def test_what_the_kernel_gives_of_itself_comes_back_when_what_is_there_is_deleted(there: list[Qdisc]) -> None:
    assert ways_back(there, "fq_codel") == ((),)


def test_a_default_that_is_no_longer_the_default_would_not_come_back() -> None:
    for there in ([qdisc("pfifo_fast")], [qdisc("mq"), qdisc("pfifo_fast", parent=":1")]):
        with pytest.raises(InputError, match=r"pfifo_fast, which cannot .*: the default here is fq_codel"):
            ways_back(there, "fq_codel")


def test_one_that_was_set_keeps_handle_and_settings() -> None:
    tbf = qdisc("tbf", "8001:", options={"rate": 50_000_000, "burst_raw": "14000", "limit": 3000})
    first = ways_back([tbf], "fq_codel")[0]
    assert first == ("handle", "8001:", "tbf", "rate", "400000000bit", "burst", "262144", "limit", "3000")


@pytest.mark.parametrize(
    "there",
    [
        [qdisc("htb", "1:")],
        [qdisc("mq", "8001:")],
        [qdisc("tbf", "1:"), qdisc("pfifo", "2:", parent="1:1")],
        [],
    ],
)
def test_others_are_refused(there: list[Qdisc]) -> None:
    with pytest.raises(InputError):
        ways_back(there, "fq_codel")


def test_counts_of_users_and_the_order_of_queues_are_no_settings() -> None:
    other = [{**one, "refcnt": 9, "dev": "eth0"} for one in reversed(MQ)]
    assert settings(other) == settings(MQ)
    assert settings(MQ) != settings(MQ[:2])


def test_rates_are_told_in_megabits() -> None:
    assert in_words([qdisc("tbf", "1:", options={"rate": 25_000_000})]) == "tbf at 200 Mb/s"
    assert in_words([]) == "nothing"
