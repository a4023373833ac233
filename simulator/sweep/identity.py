"""What a result depends on: the code that a policy runs on and the files that a task names, as digests."""

import ast
import hashlib
import json
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import dally
from dally.policies.registry import parse_policy
from simulator.sweep.plan import SweepTask

_COMMON = ("simulator.scenario", "simulator.inputs")
_DALLY = Path(dally.__file__).parent
"""Where the clusters and profiles lie that come with Dally, and that a task may name."""


def task_key(task: SweepTask) -> str:
    """A key of 16 hex digits, equal for two tasks only if they must give the same result."""
    inputs = task.inputs
    sources = inputs.trace, inputs.cluster, inputs.profiles, inputs.failures, inputs.priorities
    known = {
        "policy": task.policy,
        "inputs": asdict(inputs),
        "code": code_digest((*_COMMON, parse_policy(task.policy).policy.__module__)),
        "files": [path_digest(Path(source)) for source in sources if source is not None],
        "shipped": path_digest(_DALLY / "cluster" / "examples") + path_digest(_DALLY / "profiles" / "sets"),
    }
    return _digest(json.dumps(known, sort_keys=True, default=str).encode())[:16]


@cache
def path_digest(path: Path) -> str:
    """The digest of a file, or of all files in a folder; empty for what is not on disk."""
    if path.is_file():
        return _digest(path.read_bytes())
    if not path.is_dir():
        return ""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    lines = (f"{each.relative_to(path)} {_digest(each.read_bytes())}\n" for each in files)
    return _digest("".join(lines).encode())


@cache
def code_digest(modules: tuple[str, ...]) -> str:
    """The digest of modules and all that they import from their own packages; comments do not count."""
    found: dict[str, str] = {}
    queue = list(modules)
    roots = {name.partition(".")[0] for name in ("dally", *modules)}
    while queue:
        name = queue.pop()
        if name in found or name.partition(".")[0] not in roots:
            continue
        digest, imported = _module(name)
        if digest:
            found[name] = digest
            queue += imported
    return _digest(json.dumps(sorted(found.items())).encode())


@cache
def _module(name: str) -> tuple[str, tuple[str, ...]]:
    """The digest of a module's code and the names it may import; empty if there is no such module."""
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # a name inside a module, not a module
        spec = None
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return "", ()
    tree = ast.parse(Path(spec.origin).read_bytes())
    imported: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported += (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    return _digest(ast.dump(tree).encode()), tuple(imported)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
