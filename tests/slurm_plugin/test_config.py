"""The site's configuration."""

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
