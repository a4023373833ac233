"""Text that is safe to print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_plugin.plain_text import plain


@given(st.text(max_size=300))
def test_whatever_a_user_wrote_comes_out_as_one_printable_line(text: str) -> None:
    assert plain(text).isprintable()


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"]), max_size=200))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]0;root\x07", r"a\x1b]0;root\x07"),
        ("a\x9b31m", r"a\x9b31m"),
        ("a\nERROR b", r"a\nERROR b"),
        ("a\u202eb", r"a\u202eb"),
        ("\ud800", r"\ud800"),
        ("naïve 模型", "naïve 模型"),
    ],
)
def test_what_a_terminal_would_obey_is_spelt_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_long_text_is_cut() -> None:
    assert plain("x" * 65_536, 10) == "xxxxxxxxxx…"
