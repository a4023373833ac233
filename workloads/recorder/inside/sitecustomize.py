"""Runs at the start of every Python of a recorded job, and starts the recorder where PyTorch's ranks may be.

A program that never imports `torch.distributed` pays for one finder of imports: what else is needed is
imported where it is. Old Pythons read this file, too; what is written here, Python 3.6 understands.
"""

import os
import sys

_HERE = os.path.dirname(os.path.realpath(__file__))


class _TorchDistributedFinder:
    """Finds no module, but is asked for each: so it knows when `torch.distributed` is imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Start the recorder before that module; whatever fails there, the import goes on."""
        if name != "torch.distributed":
            return
        from contextlib import suppress  # noqa: PLC0415

        with suppress(Exception):
            sys.meta_path.remove(_TorchDistributedFinder)
            from importlib.util import module_from_spec, spec_from_file_location  # noqa: PLC0415

            spec = spec_from_file_location("dally_recorder", os.path.join(_HERE, "dally_recorder.py"))
            if spec and spec.loader:
                sys.modules[spec.name] = recorder = module_from_spec(spec)
                spec.loader.exec_module(recorder)
                recorder.start()


def _run_hidden(ran: "set[str | None]") -> None:
    """Run the next module of this name on the path, which this one hides, as Python would have.

    Such modules may do the same, and come back here: none is run twice.
    """
    from importlib.machinery import PathFinder  # noqa: PLC0415

    for entry in sys.path:
        spec = None if os.path.realpath(entry) == _HERE else PathFinder.find_spec(__name__, [entry])
        if spec and spec.loader and spec.origin and spec.origin not in ran:
            from importlib.util import module_from_spec  # noqa: PLC0415

            ran.add(spec.origin)
            own = sys.modules.get(__name__)
            sys.modules[__name__] = module = module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except BaseException:
                if own:
                    sys.modules[__name__] = own
                raise
            return


_ran = sys.__dict__.setdefault("_dally_sitecustomize", set())
if not _ran:
    _ran.add(None)
    if os.environ.get("DALLY_LEARN") and "DALLY_LEARN_RANK" not in os.environ:
        sys.meta_path.insert(0, _TorchDistributedFinder)
_run_hidden(_ran)
