"""A result is found again as long as nothing that it depends on has changed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dally
from simulator.sweep import identity
from simulator.sweep.plan import SweepTask, read_plan


@pytest.fixture(autouse=True)
def _read_again() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    """What may change; not Dally's own modules, which do not, and of which each test would parse all anew."""
    for cached in (identity.path_digest, identity.code_digest):
        cached.cache_clear()


def task(folder: Path, more: str = "") -> SweepTask:
    path = folder / "study.toml"
    path.write_text(f'policies = ["fifo"]\ntrace = "{folder}/jobs.csv"\ncluster = "demo"\n{more}')
    return read_plan(path).tasks[0]


def test_the_key_changes_with_values_and_files_not_with_the_setting_s_name(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("one")
    first = identity.task_key(task(tmp_path))
    assert identity.task_key(task(tmp_path, "[[settings]]\nname = 'x'")) == first
    assert identity.task_key(task(tmp_path, "congestion = 0.5")) != first


@pytest.mark.parametrize("name", ["jobs.csv", "failures.csv", "priorities.toml"])
def test_the_key_changes_with_each_file_that_a_task_names(tmp_path: Path, name: str) -> None:
    named = f'failures = "{tmp_path}/failures.csv"\npriorities = "{tmp_path}/priorities.toml"'
    (tmp_path / name).write_text("one")
    first = identity.task_key(task(tmp_path, named))
    (tmp_path / name).write_text("two")
    forget()
    assert identity.task_key(task(tmp_path, named)) != first


def test_code_counts_with_what_it_imports_and_comments_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "thirdparty"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "policy.py").write_text("import json\nfrom thirdparty import sizes\n")
    (package / "sizes.py").write_text("SIZE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for text in ("SIZE = 1\n", "SIZE  =  1  # like before\n", "SIZE = 2\n"):
        (package / "sizes.py").write_text(text)
        forget()
        identity._module.cache_clear()
        digests.append(identity.code_digest(("thirdparty.policy",)))
    assert digests[0] == digests[1] != digests[2]
    sys.modules.pop("thirdparty", None)
    identity._module.cache_clear()


def test_the_clusters_and_profiles_that_come_with_dally_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def digest(path: Path) -> str:
        folders.append(path)
        return path.name

    monkeypatch.setattr(identity, "path_digest", digest)
    identity.task_key(task(tmp_path))
    shipped = [folder for folder in folders if folder.parent.parent == Path(dally.__file__).parent]
    assert [folder.name for folder in shipped] == ["examples", "sets"]
    assert all(any(folder.iterdir()) for folder in shipped)
