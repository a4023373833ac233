"""Rules tell the models of jobs by their names."""

from pathlib import Path

import pytest

from analysis.advise.naming import NamingRules, check_models, read_rules
from dally.errors import InputError


def test_the_first_rule_that_fits_counts_whatever_the_case() -> None:
    rules = NamingRules({"*BERT*": "bert-large", "train-*": "resnet50"})
    assert rules.model_of("train-bert-3") == "bert-large"
    assert rules.model_of("Train-7") == "resnet50"
    assert rules.model_of("debug") == ""


def test_a_models_own_name_needs_no_rule() -> None:
    assert NamingRules().model_of("VGG11", ["resnet50", "vgg11"]) == "vgg11"


def test_rules_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('[models]\n"b*" = "one"\n"a*" = "two"\n')
    assert list(read_rules(path).models.items()) == [("b*", "one"), ("a*", "two")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[model]\n", "must have one table, \\[models\\]"),
        ("[models]\n", "must have one table"),
        ('[models]\n"a" = 3\n', "the model of 'a' is 3"),
        ("nonsense", "no TOML file"),
    ],
)
def test_wrong_rules_are_told(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "models.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=fault):
        read_rules(path)


def test_a_model_without_a_profile_is_told() -> None:
    with pytest.raises(InputError, match=r"'x\*' is of model 'gpt', of which there is no profile; .* vgg11"):
        check_models(NamingRules({"x*": "gpt"}), ["resnet50", "vgg11"], Path("models.toml"))
