"""Imports modules that need packages which may be missing; says in one line what failed and what helps."""

import importlib
from importlib.util import find_spec
from types import ModuleType

from dally.errors import InputError

_OWN = frozenset({"analysis", "dally", "profiler", "simulator", "slurm_plugin", "testbed", "workloads"})
"""Our top-level packages. Their names are common words, so a user's folder may hide one of them."""

_EXTRAS = {"scipy": "solvers"}
"""The extra that brings a package which several of our modules need."""


class MissingModuleError(InputError):
    """A module of Dally cannot be imported."""


def import_optional(module: str, extra: str = "") -> ModuleType:
    """Import one of Dally's modules.

    Args:
        module: Its full name.
        extra: The extra of Dally that brings the packages which it needs, if it needs any.

    Raises:
        MissingModuleError: It, or something that it imports, cannot be imported; the message names that.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or ""
        package = missing.partition(".")[0]
        if package in _OWN and (found := find_spec(package)) is not None:
            place = next(iter(found.submodule_search_locations or ()), found.origin)
            reason = (
                f"{missing} is not in {package} at {place}, which hides Dally's; "
                "take it off the Python path (PYTHONPATH, the current folder), or rename it"
            )
        elif isinstance(error, ModuleNotFoundError):
            extra = extra or _EXTRAS.get(package, "")
            helps = f"; in Dally's folder: pip install '.[{extra}]'" if extra else ""
            reason = f"the Python package {package} is not installed{helps}"
        else:
            reason = f"{missing or 'a Python package'} cannot be imported: {error}"
        raise MissingModuleError(reason) from error
