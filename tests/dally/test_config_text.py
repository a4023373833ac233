import pytest

from dally.cluster.slurm_topology import parse_yaml
from dally.config_text import parse_toml
from dally.errors import InputError


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 3_000 + "]" * 3_000, "a." * 100_000 + "a = 1", "a = " + "{a = " * 40 + "1" + "}" * 40],
)
def test_toml_nested_beyond_use_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="not valid TOML: it is nested more than 32 deep"):
        parse_toml(text)


@pytest.mark.parametrize("number", ["1" + "0" * 400, "9" * 5_000, "0x" + "f" * 5_000])
def test_a_number_beyond_64_bits_is_one_line(number: str) -> None:
    with pytest.raises(InputError, match="not valid TOML: a whole number has more than 64 bits"):
        parse_toml(f"a = [{number}]")
    with pytest.raises(InputError, match="not valid YAML: "):
        parse_yaml(f"a: [{number}]")


@pytest.mark.parametrize("text", ["[" * 1_000, "a: 2024-13-45", "&a [*a]"])
def test_yaml_that_nobody_can_use_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="not valid YAML: "):
        parse_yaml(text)


def test_aliases_that_stand_for_billions_are_looked_at_once() -> None:
    lines = ["- &a0 [x]", *(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    assert len(parse_yaml("\n".join(lines))) == 30
