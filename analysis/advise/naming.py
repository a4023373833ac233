"""Which model a job trains, by rules that an administrator gives for job names."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from dally.config_text import parse_toml
from dally.errors import InputError


@dataclass(frozen=True, slots=True)
class NamingRules:
    """Patterns of job names, as a shell has them, each with a model; the first that fits counts."""

    models: Mapping[str, str] = field(default_factory=dict)

    def model_of(self, name: str, known: Collection[str] = ()) -> str:
        """The model of a job's name; empty if no rule fits. A name that is a known model's needs no rule."""
        lower = name.lower()
        for pattern, model in self.models.items():
            if fnmatchcase(lower, pattern.lower()):
                return model
        return next((model for model in known if model.lower() == lower), "")


def read_rules(path: Path) -> NamingRules:
    """Read rules from a TOML file with one table, `[models]`, of `"pattern" = "model"`.

    Raises:
        InputError: It cannot be read, or has anything else in it.
    """
    try:
        said = parse_toml(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: no TOML file: {error}") from error
    models = said.get("models")
    if set(said) != {"models"} or not isinstance(models, dict) or not models:
        raise InputError(f'{path}: must have one table, [models], of lines like "*bert*" = "bert-large"')
    for pattern, model in models.items():
        if not isinstance(model, str) or not model:
            raise InputError(f"{path}: the model of {pattern!r} is {model!r}, must be a name")
    return NamingRules(models)


def check_models(rules: NamingRules, known: Collection[str], where: Path) -> None:
    """Refuse rules that name models without a profile.

    Raises:
        InputError: A model is not known; names it and those that are.
    """
    for pattern, model in rules.models.items():
        if model not in known:
            raise InputError(
                f"{where}: {pattern!r} is of model {model!r}, of which there is no profile; "
                f"the profiles have {', '.join(known)}"
            )
