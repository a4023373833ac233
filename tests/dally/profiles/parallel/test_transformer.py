"""Shapes of models against the sizes that their makers publish."""

import pytest

from dally.errors import InputError
from dally.profiles.parallel.transformer import MODELS, gpt, read_model


@pytest.mark.parametrize(
    ("name", "billions", "active_billions"),
    [
        ("gpt-175b", 175, 175),
        ("llama3-8b", 8.0, 8.0),
        ("llama3-70b", 70.6, 70.6),
        ("llama3-405b", 405, 405),
        ("qwen3-30b-a3b", 30.5, 3.3),
        ("qwen3-235b-a22b", 235, 22),
        ("gpt-oss-120b", 117, 5.1),
        ("deepseek-v3", 671, 37),
        ("kimi-k2", 1000, 32),
        ("nemotron-3-nano", 31.6, 3.6),
        ("nemotron-3-super", 120, 12),
    ],
)
def test_parameters_are_about_those_published(name: str, billions: float, active_billions: float) -> None:
    model = MODELS[name]
    # The first layers of some models with experts are dense; one embedding may count as active or not.
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.06)
    used = model.layers * (model.dense_parameters + model.routed_parameters) + model.embedding_parameters
    assert used / 1e9 == pytest.approx(active_billions, rel=0.15)


def test_a_shape_can_be_given_by_its_sizes() -> None:
    assert read_model("layers=2,hidden=8,heads=2,ffn=32,vocabulary=100") == gpt(2, 8, 2, 100)
    assert read_model("layers=2,hidden=8,heads=2,ffn=32,vocabulary=100,gated=1").gated


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpt-5", "model 'gpt-5' is not known; valid: gpt-175b"),
        ("layers=2", "model: lacks ffn, heads, hidden, vocabulary"),
        ("width=2", "model: 'width' is not a key; valid: layers, hidden"),
        ("layers=two", "model: layers is 'two', must be a whole number"),
        ("layers=0,hidden=8,heads=2,ffn=32,vocabulary=100", "model: layers is 0, must be 1 to 1,000,000,000"),
        ("layers=2,hidden=8,heads=9,ffn=32,vocabulary=100", "model: heads is 9, must be at most hidden = 8"),
    ],
)
def test_what_is_wrong_is_named_with_what_is_valid(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_model(text)
    assert str(error.value).startswith(message)
