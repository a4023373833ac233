from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from profiler.recorded.plan_recognition import RecognisedPlan, recognise
from profiler.recorded.record import read_run
from tests.profiler.recorded.jobs import entry, write

Groups = dict[str, tuple[Sequence[int], str]]

BUCKET, SHAPE = [1 << 20], [4, 512, 64]
REDUCE, GATHER, SCATTER = "nccl:all_reduce", "nccl:_all_gather_base", "nccl:_reduce_scatter_base"


def recognised(
    folder: Path, world: int, groups: Groups, step: list[dict[str, Any]], parameters: int = 0
) -> RecognisedPlan:
    """The plan of a job of whose ranks the first left a record."""
    write(folder, 0, world, groups, step, parameters=parameters)
    return recognise(read_run(folder).records)


def fsdp(group: str, ranks: int, layers: int = 3) -> list[dict[str, Any]]:
    size = [BUCKET[0] // ranks]
    return [
        *[entry(group, GATHER, size)] * 2 * layers,
        *[entry(group, SCATTER, BUCKET, "Float")] * layers,
    ]


def test_gradients_reduced_over_all_ranks_are_data_parallel(tmp_path: Path) -> None:
    found = recognised(tmp_path, 8, {"0": (range(8), "default_pg")}, [entry("0", REDUCE, BUCKET)] * 3)
    assert str(found.plan) == "dp=8"
    assert found.traffic[0].sent_bytes == pytest.approx(3 * 2 * 7 / 8 * BUCKET[0] * 2)


def test_parameters_gathered_once_are_zero_1_and_twice_fsdp(tmp_path: Path) -> None:
    once = [entry("0", SCATTER, BUCKET), entry("0", GATHER, [BUCKET[0] // 8])]
    assert str(recognised(tmp_path, 8, {"0": (range(8), "")}, once).plan) == "dp=8,zero=1"
    assert str(recognised(tmp_path, 8, {"0": (range(8), "")}, fsdp("0", 8)).plan) == "dp=8,zero=3"


def test_gradients_reduced_to_their_owner_are_zero(tmp_path: Path) -> None:
    step = [entry("0", "nccl:reduce", BUCKET), entry("0", GATHER, [BUCKET[0] // 8])]
    found = recognised(tmp_path, 8, {"0": (range(8), "")}, step)
    assert (str(found.plan), found.traffic[0].calls) == ("dp=8,zero=1", 2)


def test_parameters_that_each_owner_sends_to_all_are_zero(tmp_path: Path) -> None:
    step = [entry("0", REDUCE, [4 << 20]), *[entry("0", "nccl:broadcast", BUCKET)] * 4]
    assert str(recognised(tmp_path, 4, {"0": (range(4), "")}, step).plan) == "dp=4,zero=1"


def test_buffers_of_a_network_and_gathered_features_are_no_parameters(tmp_path: Path) -> None:
    step = [
        entry("0", "nccl:broadcast", [1 << 14]),
        *[entry("0", REDUCE, BUCKET)] * 3,
        entry("0", GATHER, [1024, 512]),
    ]
    assert str(recognised(tmp_path, 8, {"0": (range(8), "")}, step).plan) == "dp=8"


def test_gradients_that_a_program_reduces_one_by_one_are_data_parallel(tmp_path: Path) -> None:
    """They keep their shapes, as activations do; but they are as many as the optimizer's parameters."""
    step = [entry("0", REDUCE, shape) for shape in ([256, 64], [256], [64, 256], [10])]
    parameters = 2 * 256 * 64 + 256 + 10
    assert str(recognised(tmp_path, 4, {"0": (range(4), "")}, step, parameters=parameters).plan) == "dp=4"
    activations = recognised(tmp_path, 4, {"0": (range(4), "")}, step, parameters=2 * parameters)
    assert str(activations.plan) == "tp=4"


def test_shards_and_replicas_that_cross_are_one_data_axis(tmp_path: Path) -> None:
    groups: Groups = {"1": ([0, 1, 2, 3], "mesh_shard"), "2": ([0, 4, 8, 12], "mesh_replicate")}
    step = [*fsdp("1", 4), *[entry("2", REDUCE, [BUCKET[0] // 4], "Float")] * 3]
    found = recognised(tmp_path, 16, groups, step)
    assert str(found.plan) == "dp=16,zero=3"
    assert found.doubts == ("1 of 16 ranks left a record, not 1, 2, 3, 4, 5, 6, 7, 8, ...",)


@pytest.mark.parametrize("kinds", [[REDUCE] * 4, [GATHER, SCATTER] * 4])
def test_activations_reduced_in_every_layer_are_tensor_parallel(tmp_path: Path, kinds: list[str]) -> None:
    groups: Groups = {"1": ([0, 1], "mesh_tp"), "2": ([0, 2, 4, 6], "mesh_dp")}
    step = [*[entry("1", kind, SHAPE) for kind in kinds], entry("2", REDUCE, BUCKET)]
    assert str(recognised(tmp_path, 8, groups, step).plan) == "tp=2,dp=4"


def test_the_axis_of_neighbouring_ranks_comes_first_in_the_order(tmp_path: Path) -> None:
    groups: Groups = {"1": ([0, 4], "mesh_tp"), "2": ([0, 1, 2, 3], "mesh_dp")}
    step = [*[entry("1", REDUCE, SHAPE)] * 4, entry("2", REDUCE, BUCKET)]
    assert str(recognised(tmp_path, 8, groups, step).plan) == "tp=2,dp=4,order=dp-cp-tp-pp"


def test_all_to_alls_are_expert_parallel(tmp_path: Path) -> None:
    groups: Groups = {"0": (range(8), "default_pg"), "1": ([0, 1, 2, 3], "")}
    step = [*[entry("1", "nccl:all_to_all", [2048, 64])] * 4, entry("0", REDUCE, BUCKET)]
    assert str(recognised(tmp_path, 8, groups, step).plan) == "dp=8,ep=4"


def test_the_programs_own_word_tells_context_from_tensor(tmp_path: Path) -> None:
    groups: Groups = {"1": ([0, 1], "CONTEXT_PARALLEL_GROUP"), "2": ([0, 2], "DATA_PARALLEL_GROUP")}
    step = [*[entry("1", GATHER, SHAPE)] * 4, entry("2", REDUCE, BUCKET)]
    assert str(recognised(tmp_path, 4, groups, step).plan) == "cp=2,dp=2"


def test_ranks_that_share_a_context_reduce_gradients_together(tmp_path: Path) -> None:
    groups: Groups = {"0": (range(8), "default_pg"), "1": ([0, 1], "mesh_cp")}
    step = [*[entry("1", "nccl:all_to_all", SHAPE)] * 4, entry("0", REDUCE, BUCKET)]
    found = recognised(tmp_path, 8, groups, step)
    assert (str(found.plan), found.doubts[1:]) == ("cp=2,dp=4", ())


def test_what_stages_receive_makes_no_other_axis(tmp_path: Path) -> None:
    """NCCL's Flight Recorder tells both ends of a message."""
    for rank, other in ((0, 1), (1, 0)):
        step = [
            entry("0", f"nccl:send {rank}->{other}", SHAPE),
            entry("0", f"nccl:recv {rank}<-{other}", SHAPE),
        ]
        write(tmp_path, rank, 2, {"0": ([0, 1], "default_pg")}, [*step, entry("0", "nccl:coalesced", [])])
    found = recognise(read_run(tmp_path).records)
    assert (str(found.plan), found.doubts) == ("pp=2", ())


def test_a_name_that_does_not_fit_what_is_sent_is_told(tmp_path: Path) -> None:
    found = recognised(tmp_path, 2, {"1": ([0, 1], "mesh_tp")}, [entry("1", REDUCE, BUCKET)])
    assert str(found.plan) == "tp=2"
    assert "group mesh_tp sends what dp sends, and its name says tp" in found.doubts


def test_messages_from_stage_to_stage_are_a_pipeline(tmp_path: Path) -> None:
    """Ranks 0, 2, 4, 6 and 1, 3, 5, 7 are the stages of two replicas."""
    for rank in range(8):
        pair = [rank - rank % 2, rank - rank % 2 + 1]
        groups: Groups = {"0": (range(8), "default_pg"), "1": (pair, "mesh_dp")}
        sent = [("0", 8192, peer) for peer in (rank - 2, rank + 2) if 0 <= peer < 8]
        write(tmp_path, rank, 8, groups, [entry("1", REDUCE, BUCKET)], sent * 4)
    found = recognise(read_run(tmp_path).records)
    assert (str(found.plan), found.doubts) == ("pp=4,dp=2", ())


def test_flags_and_losses_are_not_an_axis(tmp_path: Path) -> None:
    groups: Groups = {"0": (range(4), "default_pg"), "1": ([0, 1], "")}
    step = [entry("1", REDUCE, [1], "Float"), entry("0", REDUCE, BUCKET)]
    assert [each.ranks for each in recognised(tmp_path, 4, groups, step).traffic] == [(0, 1, 2, 3)]


def test_replicas_that_send_nothing_are_doubted(tmp_path: Path) -> None:
    found = recognised(tmp_path, 8, {"1": ([0, 1], "mesh_tp")}, [entry("1", REDUCE, SHAPE)] * 4)
    assert str(found.plan) == "tp=2,dp=4"
    assert "4 replicas were seen to send each other nothing" in found.doubts


def test_axes_that_do_not_fit_the_ranks_are_no_plan(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="4 ranks are not a multiple of tp=3"):
        recognised(tmp_path, 4, {"1": ([0, 1, 2], "mesh_tp")}, [entry("1", REDUCE, SHAPE)] * 4)
