"""Parallel plans as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.jobs.parallelism import USUAL_ORDER, Axis, Parallelism

SIZES = st.integers(1, 6)


@given(
    tp=SIZES,
    pp=SIZES,
    cp=SIZES,
    dp=SIZES,
    zero=st.integers(0, 3),
    recompute=st.booleans(),
    order=st.permutations(USUAL_ORDER),
    layers=st.integers(0, 9),
)
def test_what_is_printed_reads_as_the_same_plan(
    tp: int, pp: int, cp: int, dp: int, zero: int, recompute: bool, order: list[Axis], layers: int
) -> None:
    plan = Parallelism(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=dp,
        zero=zero,
        vp=2 if pp > 1 else 1,
        recompute=recompute,
        stages=(layers,) * pp,
        order=tuple(order),
    )
    assert Parallelism.parse(str(plan)) == plan


def test_only_what_is_unusual_is_printed() -> None:
    assert str(Parallelism(dp=2, tp=8, pp=4, recompute=True)) == "tp=8,pp=4,dp=2,recompute=yes"
    assert str(Parallelism()) == "dp=1"


def test_experts_take_no_more_gpus() -> None:
    assert Parallelism.parse("tp=2,pp=8,dp=64,cp=2,ep=64").gpus == 2 * 8 * 64 * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp8", "plan: 'tp8' is not a part of a plan; valid: tp, pp, cp, dp, ep,"),
        ("xp=8", "plan: 'xp=8' is not a part of a plan"),
        ("tp=8,tp=4", "plan: tp is named twice"),
        ("tp=many", "plan: tp is 'many', must be a whole number"),
        ("tp=0", "plan: tp is 0, must be 1 to 100,000"),
        ("tp=1000,dp=1000", "plan: has 1,000,000 GPUs, must have at most 100,000"),
        ("zero=4", "plan: zero is 4, must be 0 to 3"),
        ("dp=4,ep=3", "plan: ep is 3, must divide dp x cp x tp = 4"),
        ("vp=2", "plan: vp is 2, but there is one stage"),
        ("recompute=1", "plan: recompute is '1', must be yes or no"),
        ("pp=2,stages=3", "plan: stages is 3, must name the layers of 2 stages"),
        ("order=tp-dp", "plan: order is tp-dp, must hold tp, cp, dp and pp once each"),
        ("order=tp-xx-dp-pp", "plan: order is 'tp-xx-dp-pp', must be axes such as"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        Parallelism.parse(text)
    assert str(error.value).startswith(message)
