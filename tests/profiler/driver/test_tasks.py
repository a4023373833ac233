from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from profiler.driver.store import MeasurementStore
from profiler.driver.tasks import plan_tasks
from profiler.messages import Message, Started
from profiler.spec import MeasurementRun
from tests.profiler.driver.worlds import ENV, make_run, messages, reduced, trained


@pytest.fixture
def store(tmp_path: Path) -> MeasurementStore:
    store = MeasurementStore(tmp_path / "out")
    store.raw.mkdir(parents=True)
    return store


def keep(
    store: MeasurementStore, run: MeasurementRun, found: Sequence[Message], finished: bool = False
) -> None:
    store.begin(run)
    for message in found:
        store.add(run.name, message)
    if finished:
        store.finish(run.name)


def test_runs_without_files_are_to_do_whole(store: MeasurementStore) -> None:
    (task,) = plan_tasks([make_run()], store, resume=False)

    assert task.remaining == task.whole == make_run()


@pytest.mark.parametrize("finished", [True, False])
def test_files_that_exist_are_refused_without_resume(store: MeasurementStore, finished: bool) -> None:
    keep(store, make_run(), messages("resnet18", "vgg11"), finished)

    with pytest.raises(InputError, match=r"rack-2x1.*jsonl exists; go on from it with --resume"):
        plan_tasks([make_run()], store, resume=False)


def test_a_complete_run_is_not_done_again(store: MeasurementStore) -> None:
    keep(store, make_run(), messages("resnet18", "vgg11"), finished=True)

    assert plan_tasks([make_run()], store, resume=True) == ()


def test_a_partial_run_goes_on_with_the_models_and_sizes_that_are_missing(store: MeasurementStore) -> None:
    keep(store, make_run(), messages("resnet18")[:-1])

    (task,) = plan_tasks([make_run()], store, resume=True)

    assert task.remaining.spec.models == ("vgg11",)
    assert task.remaining.spec.sweep_bytes == ()
    assert task.kept == (Started(ENV), reduced(4096), reduced(4000), trained("resnet18"))
    assert task.whole == make_run()


def test_a_run_that_ended_before_it_said_so_does_its_last_model_again(store: MeasurementStore) -> None:
    keep(store, make_run(), messages("resnet18", "vgg11")[:-1])

    (task,) = plan_tasks([make_run()], store, resume=True)

    assert task.missing == ("vgg11",)
    assert task.kept[-1] == trained("resnet18")


def test_models_can_be_added_to_a_complete_run(store: MeasurementStore) -> None:
    keep(store, make_run(models=["resnet18"]), messages("resnet18"), finished=True)

    (task,) = plan_tasks([make_run(models=["gpt2"])], store, resume=True)

    assert task.remaining.spec.models == ("gpt2",)
    assert task.whole.spec.models == ("resnet18", "gpt2")


def test_a_run_may_go_on_on_other_hosts(store: MeasurementStore) -> None:
    keep(store, make_run(), messages("resnet18")[:-1])

    (task,) = plan_tasks([replace(make_run(), hosts=("h3", "h4"))], store, resume=True)

    assert task.whole.hosts == ("h3", "h4")


def test_a_run_of_another_order_is_refused_with_what_differs(store: MeasurementStore) -> None:
    keep(store, make_run(), messages("resnet18")[:-1])
    other = replace(make_run(), spec=replace(make_run().spec, local_batch=4))

    with pytest.raises(InputError, match="was measured with local_batch None, not 4; name another --out"):
        plan_tasks([other], store, resume=True)


def test_a_run_over_another_link_is_refused(store: MeasurementStore) -> None:
    keep(store, make_run(), messages("resnet18")[:-1])

    with pytest.raises(InputError, match=r"with link PointLink.*, not None; name another --out"):
        plan_tasks([replace(make_run(), link=None)], store, resume=True)


def test_a_file_that_holds_something_else_is_named(store: MeasurementStore) -> None:
    store.complete("rack-2x1").write_text("hello\n")

    with pytest.raises(InputError, match=r"rack-2x1.jsonl:1: not a JSON line"):
        plan_tasks([make_run()], store, resume=True)
