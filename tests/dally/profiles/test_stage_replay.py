"""Pipelines and what gloo and TCP make of their messages, as far as it follows by hand."""

from math import inf

import pytest
from hypothesis import given

from dally.profiles.event_replay import Transfer, replay_s
from dally.profiles.stage_replay import replay_stages_s
from tests.dally.profiles.test_event_replay import TIMES, transfers


def one_f_one_b(stages: int, microbatches: int, forward_s: float, send_s: float) -> list[Transfer]:
    """The messages of a pipeline in 1F1B, whose backward takes as long as forward."""
    asked: dict[tuple[int, int, bool], float] = {}  # when a stage asks for a microbatch, forward or backward
    handed: dict[tuple[int, int, bool], float] = {}
    for stage in range(stages):
        ahead = min(microbatches, stages - stage)
        order = [(number, True) for number in range(ahead)]
        for number in range(microbatches):
            order.append((number, False))
            order += [(number + ahead, True)] if number + ahead < microbatches else []
        for place, (number, forward) in enumerate(order):
            asked[stage, number, forward] = place * forward_s
            handed[stage, number, forward] = (place + 1) * forward_s
    found = []
    for (stage, number, forward), ready_s in handed.items():
        to = stage + (1 if forward else -1)
        if 0 <= to < stages:
            found.append(Transfer(ready_s, asked[to, number, forward], send_s, 0, stage, to))
    return sorted(found)


def test_a_pipeline_has_its_bubble_and_messages_between_neighbours_lengthen_fill_and_drain() -> None:
    # 1F1B of p stages and m microbatches lasts (m + p - 1) forwards and backwards (PipeDream, 2019).
    stages = [(8.0, 0.0)] * 3
    assert replay_stages_s(one_f_one_b(3, 4, 1.0, 0.0), stages) == 2 * (4 + 3 - 1)
    one = [(2.0, 0.0)] * 3
    assert replay_stages_s(one_f_one_b(3, 1, 1.0, 0.25), one) == 2 * 3 + 4 * 0.25


def test_a_slow_stage_holds_the_others_up() -> None:
    # The second stage computes 3 s before it takes what the first one sends after 1 s and needs back.
    messages = [Transfer(1.0, 3.0, 0.5, 0, 0, 1), Transfer(4.0, 1.0, 0.5, 0, 1, 0)]
    assert replay_stages_s(messages, [(1.0, 0.25), (4.0, 0.0)]) == 3 + 0.5 + 1 + 0.5 + 0.25


def test_a_stage_sends_one_message_after_another_and_takes_one_after_another() -> None:
    stages = [(0.0, 0.0), (1.0, 0.0), (0.0, 0.0)]
    both_ways = [Transfer(1.0, 0.0, 2.0, 0, 1, 0), Transfer(1.0, 0.0, 2.0, 0, 1, 2)]
    assert replay_stages_s(both_ways, stages) == 5.0
    from_both = [Transfer(0.0, 1.0, 2.0, 0, 0, 1), Transfer(0.0, 1.0, 2.0, 0, 2, 1)]
    assert replay_stages_s(from_both, stages) == 5.0
    assert replay_stages_s([from_both[0], from_both[1]._replace(links=1)], stages) == 3.0


def test_messages_that_wait_for_each_other_end_all_the_same() -> None:
    messages = [Transfer(1.0, 0.0, 0.5, 0, 0, 1), Transfer(1.0, 0.0, 0.5, 0, 1, 0)]
    assert replay_stages_s(messages, [(1.0, 0.0), (1.0, 0.0)]) < 4.0


THERE, BACK = Transfer(0.0, 2.0, 1.0, 0, 0, 1), Transfer(2.0, 1.0, 1.0, 0, 1, 0)
"""The first stage has handed its message over when the second one sends its own, and then asks for that."""


@pytest.mark.parametrize(("by_gloo", "step_s"), [(False, 3.0), (True, 4.0)])
def test_under_gloo_what_asks_for_a_message_waits_behind_one_on_the_same_connection(
    by_gloo: bool, step_s: float
) -> None:
    assert replay_stages_s([THERE, BACK], [(1.0, 0.0), (2.0, 0.0)], by_gloo) == step_s


@pytest.mark.parametrize(
    ("held", "by_gloo", "step_s"), [(1.0, False, 3.0), (0.5, False, 5.0), (1.0, True, 5.0)]
)
def test_what_nccls_buffer_holds_is_not_asked_for_first(held: float, by_gloo: bool, step_s: float) -> None:
    message = Transfer(0.0, 3.0, 2.0, 0, 0, 1, held=held)
    assert replay_stages_s([message], [(0.0, 0.0), (3.0, 0.0)], by_gloo) == step_s


def test_messages_to_two_stages_share_the_links_in_equal_parts() -> None:
    # Half the rate costs the second stage a second before it computes for 3 s.
    messages = [Transfer(0.0, 0.0, 1.0, 0, 0, 1), Transfer(0.0, 0.0, 1.0, 0, 0, 2)]
    assert replay_stages_s(messages, [(0.0, 0.0), (0.0, 3.0), (0.0, 0.0)]) == 2 + 3


def test_what_a_slower_link_holds_up_leaves_the_rest_of_the_nearer_one_to_others() -> None:
    # A quarter of the links carries the one in 4 s; meanwhile the other one, alone done in 3 s, has the rest.
    slow, fast = Transfer(0.0, 0.0, 4.0, 0, 0, 1, share=0.25), Transfer(0.0, 0.0, 3.0, 0, 0, 2)
    assert replay_stages_s([slow, fast], [(0.0, 0.0), (0.0, 0.0), (0.0, 1.0)]) == 3 / 0.75 + 1


@pytest.mark.parametrize(("sent_s", "held", "step_s"), [(inf, 0.0, 3.0), (1.0, 0.0, 5.0), (1.0, 0.75, 3.5)])
def test_a_stage_waits_until_its_message_is_sent_or_held_by_the_kernel_if_it_does(
    sent_s: float, held: float, step_s: float
) -> None:
    message = Transfer(1.0, 0.0, 2.0, 0, 0, 1, sent_s, held=held)
    after = Transfer(1.5, 1.5, 0.0, 1, 0)  # what makes the stage compute on
    assert replay_stages_s([message, after], [(3.0, 0.0), (0.0, 0.0)]) == step_s


@given(transfers, TIMES)
def test_one_stage_alone_is_replayed_as_ranks_that_all_do_the_same(
    timed: list[Transfer], compute_s: float
) -> None:
    alone_s = replay_stages_s(timed, [(compute_s, 0.5)])
    assert abs(alone_s - 0.5 - replay_s(timed, compute_s)) <= 1e-9 * alone_s
