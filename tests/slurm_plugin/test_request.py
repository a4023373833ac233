"""What a job's comment says to Dally."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from slurm_plugin.request import PLAIN, SIGNALS, Request, decode, decode_job, encode

_SIZES = st.one_of(
    st.tuples(st.integers(0, 8), st.sampled_from([0, 8, 64]), st.just(1)),
    st.tuples(st.just(0), st.just(0), st.integers(1, 1000)),
)
"""Fewest and most GPUs, and most copies."""
_REQUESTS = st.builds(
    lambda size, **said: Request(min_gpus=size[0], max_gpus=size[1], max_copies=size[2], **said),
    _SIZES,
    model=st.from_regex(r"[\w.:+=,-]{0,64}", fullmatch=True).filter(str.isascii),
    plan=st.sampled_from(["", "tp=8,pp=4,sequence=8192", "dp=2,order=tp-cp-pp-dp,sequence=1,precision=fp8"]),
    batch=st.integers(0, 999_999_999),
    signal=st.sampled_from(["", *SIGNALS]),
    grace_s=st.integers(0, 86_400),
    tag=st.from_regex(r"[0-9a-f]{0,32}", fullmatch=True),
    held=st.booleans(),
)


@given(_REQUESTS, st.text(max_size=20))
def test_a_request_comes_back_from_a_comment(request: Request, words: str) -> None:
    assert decode(encode(request, words)) == request


@given(_REQUESTS, st.text(alphabet="ab &=%'\"$;\\", max_size=20))
def test_the_users_words_stand_behind_the_mark(request: Request, words: str) -> None:
    assert encode(request, words).partition(" ")[2] == words.rstrip()


def test_a_comment_without_the_mark_is_no_request() -> None:
    assert decode("trains a model") is None


def test_a_job_that_goes_past_dally_is_no_request() -> None:
    assert decode(f"{PLAIN} my words") is None


def test_what_a_newer_wrapper_adds_is_passed_over() -> None:
    assert decode("dally:model=a&colour=red") == Request(model="a")


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("dally:grace_s=soon", "grace_s is 'soon', must be a whole number"),
        ("dally:held=2", "held is '2', must be 0 or 1"),
        ("dally:model=a;b", "model is 'a;b'"),
        ("dally:min_gpus=4&max_gpus=2", "min_gpus 4 is more than max_gpus 2"),
        ("dally:plan=tp%3D8%3Bls", "plan is 'tp=8;ls', must be like tp=8,pp=4,sequence=8192"),
        ("dally:batch=many", "batch is 'many', must be a whole number"),
        ("dally:max_copies=0", "max_copies is 0, must be 1 to 1000"),
        ("dally:max_copies=2&max_gpus=8", "copies or a range of GPUs, not both"),
        ("dally:switches=1&switch_wait_s=999999", "switch_wait_s is 999999, must be 0 to 300"),
    ],
)
def test_a_comment_written_by_hand_is_refused(comment: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decode(comment)


@pytest.mark.parametrize(
    ("comment", "admin_comment", "request_"),
    [
        ("my words", "", None),
        ("dally:model=a&held=1 my words", "", Request(model="a", held=True)),
        ("my words", "dally:model=a", Request(model="a")),
        ("dally:held=1 my words", "dally:model=a", Request(model="a", held=True)),
        ("dally:held=0", "dally:model=a", Request(model="a")),
        ("dally:model=forged&grace_s=nonsense", "dally:model=a", Request(model="a")),
        ("dally:model=a", "an administrator's note", Request(model="a")),
    ],
)
def test_the_admin_comment_wins_but_for_the_hold(
    comment: str, admin_comment: str, request_: Request | None
) -> None:
    assert decode_job(comment, admin_comment) == request_
