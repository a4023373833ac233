"""What other packages add to Dally by entry points: found by group and name, and named when it is broken.

Policies have a registry of their own, `dally.policies.registry`, as they also have knobs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from dally.errors import DallyError

TRACE_FORMATS = "dally.trace_formats"
"""`NAME = "package.module:FORMAT"`, a `dally.traces.TraceFormat`."""
PROFILE_IMPORTERS = "dally.profile_importers"
"""`NAME = "package.module:read"`, a function of the tables' path and their origin that gives profiles."""
SLURM_BACKENDS = "dally.slurm_backends"
"""`NAME = "package.module:Backend"`, called without arguments for a `slurm_plugin.client.slurm.Slurm`."""


class ExtensionError(DallyError):
    """An extension of another package is broken; the message names it and what went wrong."""


def _entry_points(group: str) -> Any:
    """Those of a group. What finds them is dear to load, and `dally-sbatch` as a rule has none to find."""
    return import_module("importlib.metadata").entry_points(group=group)


def extension_names(group: str) -> list[str]:
    """The names that other packages have registered in a group."""
    return sorted({point.name for point in _entry_points(group)})


def load_extension(group: str, name: str) -> Any:
    """The object that another package has registered in a group under a name.

    Raises:
        ExtensionError: It cannot be imported.
    """
    point = next(point for point in _entry_points(group) if point.name == name)
    with blaming_extension(group, name):
        return point.load()


@contextmanager
def blaming_extension(group: str, name: str) -> Iterator[None]:
    """Turn whatever the code of an extension raises into one line that names it.

    Nothing is done for a name that no other package has registered, as errors of ours keep their traceback.

    Raises:
        ExtensionError: It raised something else than a DallyError.
    """
    try:
        yield
    except DallyError:
        raise
    except Exception as error:
        point = next((point for point in _entry_points(group) if point.name == name), None)
        if point is None:
            raise
        raise ExtensionError(broken_line(f"{group} {name!r}", point.module, error)) from error


def broken_line(what: str, module: str, error: Exception) -> str:
    """One line: what is broken, the last place in its own module on the way to the error, and the error."""
    line, step = "", error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__") == module:
            line = f", line {step.tb_lineno}"
        step = step.tb_next
    told = " ".join(str(error).split())
    return f"{what} ({module}{line}) is broken: {type(error).__name__}: {told}"
