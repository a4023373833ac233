"""The site's configuration."""

from typing import Any

import pytest

from dally.errors import InputError
from slurm_plugin.config import parse_config


@pytest.mark.parametrize("url", ["", "http://head:9341", "http://127.0.0.1:9341/", "http://[::1]:9341"])
def test_the_controllers_address_is_taken(url: str) -> None:
    assert parse_config({"partitions": ["gpu"], "url": url}).url == url


@pytest.mark.parametrize(
    "url",
    ["head:9341", "https://head:9341", "http://head:9341/health", "http://a b", "http://a@b:1", "http://"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="must be like http://head:9341"):
        parse_config({"partitions": ["gpu"], "url": url})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"partitions": []}, "partitions is empty"),
        ({"partitions": "gpu"}, "partitions is 'gpu', must be a list of names"),
        ({"backend": "rest"}, "backend is 'rest', must be command-line, pyslurm or auto"),
        ({"fallback": "wait"}, "fallback is 'wait', must be plain or refuse"),
        ({"poll_s": 0}, "poll_s is 0, must be a positive number"),
        ({"max_requeues": -1}, "max_requeues is -1, must be 0 or more"),
        ({"max_requeues": True}, "max_requeues is True, must be a whole number"),
        ({"assumed_slowdown": 0.5}, "assumed_slowdown is 0.5, must be 1 .none. to 10, like 1.25"),
        ({"assumed_slowdown": float("nan")}, "assumed_slowdown is nan, must be 1 .none. to 10, like 1.25"),
        ({"poll": 1}, "unknown key 'poll'; valid: partitions, cluster"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_config({"partitions": ["gpu"], **wrong})
