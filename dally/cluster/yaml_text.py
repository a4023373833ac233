"""YAML that people write; not beside TOML, as `dally-sbatch` reads none and would load the package."""

from typing import Any

import yaml

from dally.config_text import TOO_DEEP, check_value
from dally.errors import InputError


def parse_yaml(text: str) -> Any:
    """What a YAML text is.

    Raises:
        InputError: It is not YAML, has numbers or dates that there are not, or is nested beyond all use.
    """
    try:
        value = yaml.safe_load(text)
        check_value(value)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"line {line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {error}") from error
    except RecursionError:
        raise InputError(f"not valid YAML: {TOO_DEEP}") from None
    except ValueError as error:
        raise InputError(f"not valid YAML: {error}") from error
    return value
