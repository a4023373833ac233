"""The study of parallel plans: small tables by hand, and the published ones where they are."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from analysis.studies.parallel_plans import (
    BLACKWELL,
    BRIDGE,
    BRIDGE_RELEASE,
    FOUNDRY,
    SAILOR,
    VTRAIN_MANY,
    VTRAIN_ONE,
    FitTransfer,
    fit_rows,
    main,
    order_pairs,
    predict_folds,
    scale_transfers,
    score_folds,
    score_split,
    transfers_table,
)
from analysis.studies.published_steps import (
    PublishedStep,
    read_llm_foundry,
    read_llm_foundry_fp8,
    read_megatron_bridge,
    read_sailor,
    read_vtrain,
)
from dally.errors import InputError
from dally.profiles.parallel.gpu_specs import GPUS

TABLES = Path(__file__).parents[3].parent / "shared" / "throughputs" / "llm"
published = pytest.mark.skipif(not TABLES.is_dir(), reason="no published tables in ../shared/throughputs/llm")

VTRAIN = "gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,iteration_ms"
FOUNDRY_ROW = {
    "Model": "3b",
    "SeqLen (T)": "2048",
    "# GPUs": "16",
    "MicroBatchSize": "10",
    "GradAccum": "3",
    "Throughput (T/s/GPU)": "24142",
    "Sharding Strategy": "FULL_SHARD",
    "Activation Checkpointing": "True",
}
BRIDGE_ROW = {
    "version": "25.11",
    "phase": "Pre-Training Performance",
    "model": "System: DGX-B200",
    "System": "",
    "#-GPUs": "128",
    "Precision": "FP8-CS (FP8-MX)",
    "GBS": "64",
    "MBS": "1",
    "Sequence Length": "8192",
    "TP": "4 (2)",
    "PP": "8",
    "CP": "2",
    "VP": "8",
    "EP": "n/a",
    "Tokens / sec / GPU": "661 (624)",
    "FSDP": "0",
    "Model": "LLAMA3.1_405B",
}


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    return path


def vtrain(tmp_path: Path, *rows: str) -> list[PublishedStep]:
    path = tmp_path / "table.csv"
    path.write_text("\n".join((VTRAIN, *rows)))
    return read_vtrain(path, recompute=True)


def test_a_row_of_vtrain_is_a_step_on_full_machines(tmp_path: Path) -> None:
    (row,) = vtrain(tmp_path, "64,512,8,3072,32,30,2048,2,32,1,3975.2")
    assert str(row.step.plan) == "tp=2,dp=32,recompute=yes"
    assert row.seconds == pytest.approx(3.9752)
    assert row.step.machines == (8,) * 8
    assert row.tokens_per_gpu(row.seconds) == pytest.approx(512 * 2048 / 64 / 3.9752)


def test_a_row_of_llm_foundry_is_sharded_as_its_strategy_says(tmp_path: Path) -> None:
    write(tmp_path / "h100_80gb_bf16.csv", [FOUNDRY_ROW])
    second = FOUNDRY_ROW | {"Sharding Strategy": "SHARD_GRAD_OP", "Activation Checkpointing": "False"}
    write(tmp_path / "h100_80gb_bf16_large_scale_128_gpus.csv", [second])
    full, gradients = read_llm_foundry(tmp_path)
    assert str(full.step.plan) == "dp=16,zero=3,recompute=yes"
    assert str(gradients.step.plan) == "dp=16,zero=2"
    assert full.step.batch.global_batch == 480
    assert full.seconds == pytest.approx(480 * 2048 / 16 / 24142)


def test_a_row_of_megatron_bridge_has_its_first_figures(tmp_path: Path) -> None:
    tuned = BRIDGE_ROW | {"phase": "LoRA Performance"}
    (row,) = read_megatron_bridge(write(tmp_path / "table.csv", [BRIDGE_ROW, tuned]))
    assert str(row.step.plan) == "tp=4,pp=8,cp=2,dp=2,zero=1,vp=8"
    assert (row.model, row.gpu, row.step.precision) == ("llama3-405b", "b200", "fp8")
    assert row.seconds == pytest.approx(64 * 8192 / 128 / 661)


def test_a_plan_of_sailor_counts_layers_without_embeddings(tmp_path: Path) -> None:
    stages = [list(range(12)), list(range(12, 26))]
    pipeline = {
        "num_stages": 2,
        "layers_per_stage": stages,
        "tmp_per_stage": [[[[["GH-96", 4, "zone"]], 4]]] * 2,
        "dp": [2, 2],
    }
    plan = {"pipeline_list": [pipeline], "mbs": 1, "gbs": 64, "real": 1.4}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    (row,) = read_sailor(tmp_path)
    assert str(row.step.plan) == "tp=4,pp=2,dp=2,stages=11-13"
    assert row.step.machines == (4,) * 4


@pytest.mark.parametrize("text", ["a,b\n1,2", f"{VTRAIN}\n64,512,8,3072,32,30,2048,two,32,1,3.5"])
def test_another_table_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "multi_node.csv").write_text(text)
    with pytest.raises(InputError, match=r"multi_node.csv: is not the published table: "):
        read_vtrain(tmp_path / "multi_node.csv", recompute=True)


def test_no_fold_is_predicted_from_its_own_rows(tmp_path: Path) -> None:
    sizes = [(1024, 12), (2048, 24), (4096, 32)]
    rows = vtrain(
        tmp_path,
        *(
            f"8,64,1,{hidden},16,{layers},2048,{tp},{8 // tp},1,1"
            for hidden, layers in sizes
            for tp in (1, 2)
        ),
    )
    true = replace(GPUS["a100"].constants, matmul=0.4)
    rows = [replace(row, seconds=row.step.seconds(true)) for row in rows]
    spoilt = [replace(row, seconds=9 * row.seconds) if row.model == "24 x 2048" else row for row in rows]
    before, after = (
        {row.model: seconds for fold in predict_folds(each, lambda row: row.model) for row, seconds in fold}
        for each in (rows, spoilt)
    )
    assert len(before) == 3
    assert before["24 x 2048"] == after["24 x 2048"]
    assert before["12 x 1024"] != after["12 x 1024"]


def test_pairs_count_if_plans_differ_and_are_right_if_the_faster_is_told(tmp_path: Path) -> None:
    rows = vtrain(
        tmp_path,
        *(
            f"8,64,1,2048,16,24,2048,{tp},{8 // tp},1,{ms}"
            for tp, ms in ((1, 1000), (2, 1020), (4, 1500), (8, 3000))
        ),
    )
    # The first two are within 3 %; the second and the third are told the wrong way round.
    order = order_pairs(list(zip(rows, (1.0, 1.6, 1.5, 2.0), strict=True)), lambda row: row.model)
    assert (order.pairs, order.right) == (5, 4)
    assert order_pairs(list(zip(rows, (1.0,) * 4, strict=True)), lambda row: row.step.plan.tp).pairs == 0


def test_a_folder_without_tables_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path)])
    assert result.exit_code == 1
    assert "multi_node.csv" in result.output
    assert result.output.startswith("Error: ")


@published
def test_vtrain_is_predicted_better_than_its_authors_did_on_sizes_held_out() -> None:
    many = score_split(read_vtrain(TABLES / "vtrain" / "multi_node.csv", recompute=True), VTRAIN_MANY)
    assert many.errors.mean < 0.1
    assert many.order.right / many.order.pairs > 0.92
    one = read_vtrain(TABLES / "vtrain" / "single_node.csv", recompute=False)
    assert score_split(one[::6], VTRAIN_ONE).errors.mean < 0.0837


@published
def test_fsdp_is_predicted_for_sizes_held_out_and_from_8_gpus_to_512() -> None:
    rows = read_llm_foundry(TABLES / "llm_foundry")
    assert score_split(rows, FOUNDRY).errors.mean < 0.04
    fp8 = FitTransfer("bf16", rows, "fp8", read_llm_foundry_fp8(TABLES / "llm_foundry"))
    lines = transfers_table([*scale_transfers(rows), fp8]).splitlines()[2:]
    few, some, other = (float(line.split("|")[5].strip(" %")) for line in lines)
    assert max(few, some) < 4
    assert other < 8


@published
def test_sailors_plans_are_predicted_for_machines_held_out() -> None:
    assert score_split(read_sailor(TABLES / "sailor"), SAILOR).errors.mean < 0.1


@published
def test_of_two_plans_of_megatron_bridge_the_faster_is_told() -> None:
    rows = read_megatron_bridge(TABLES / "megatron_bridge" / "performance.csv")
    folds = list(predict_folds(rows, BRIDGE.fold))
    for split in (BRIDGE, BRIDGE_RELEASE):
        order = score_folds(folds, split).order
        assert order.right / order.pairs > 0.8


@published
def test_the_constants_that_are_shipped_are_those_of_the_tables() -> None:
    bridge = read_megatron_bridge(TABLES / "megatron_bridge" / "performance.csv")
    fitted = {
        "a100": fit_rows(read_vtrain(TABLES / "vtrain" / "multi_node.csv", recompute=True)),
        "h100": fit_rows(read_llm_foundry(TABLES / "llm_foundry")),
        "gh200": fit_rows(read_sailor(TABLES / "sailor")),
        "b200": fit_rows([row for row in bridge if row.gpu in BLACKWELL]),
    }
    for gpu, constants in fitted.items():
        assert asdict(GPUS[gpu].constants) == pytest.approx(asdict(constants), rel=0.05)
