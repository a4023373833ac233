import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.cluster.topology import Link, Ring, Shape
from dally.errors import InputError
from dally.markdown import replace_section
from dally.profiles.files import load_profiles, write_profiles
from dally.profiles.imports.__main__ import main
from dally.profiles.imports.dally import dally_profiles
from dally.profiles.imports.gavel import GPU_TYPES, check_far, gavel_profiles
from dally.profiles.imports.imported import Origin
from dally.profiles.imports.pollux import (
    MODELS,
    MeasuredHardware,
    Measurement,
    flat_shape,
    pollux_profile,
    read_placements,
    read_scalability,
)
from dally.profiles.imports.realistic import LAYERS, realistic_profiles
from dally.profiles.imports.tables import import_profiles, import_published
from dally.profiles.iteration import predict
from dally.profiles.schema import Profile, Quality

TABLES = Path(__file__).parents[4] / "shared" / "throughputs"
needs_tables = [
    pytest.mark.trace,
    pytest.mark.skipif(not TABLES.is_dir(), reason="no published tables in ../shared/throughputs"),
]


def by_model(profiles: tuple[Profile, ...]) -> dict[str, Profile]:
    return {profile.model.name: profile for profile in profiles}


@pytest.mark.parametrize(
    ("model", "params", "gmacs"),
    [
        ("vgg11", 132_863_336, 7.61),
        ("alexnet", 61_100_840, 0.714),
        ("resnet18", 11_689_512, 1.814),
        ("resnet50", 25_557_032, 4.089),
        ("mobilenetv3", 2_542_856, 0.0565),
        ("bert-large", 335_141_888, 167.5),
    ],
)
def test_the_layers_have_the_published_parameters_and_work(model: str, params: int, gmacs: float) -> None:
    layers = LAYERS[model]
    assert sum(sum(layer.params) for layer in layers) == params
    assert sum(layer.macs for layer in layers) / 1e9 == pytest.approx(gmacs, rel=0.002)


def test_ddp_buckets_never_split_a_tensor() -> None:
    vgg = by_model(realistic_profiles())["vgg11"].model
    classifier, fc2, fc1 = vgg.buckets[:3]
    assert classifier.bytes == 4 * (4096 * 1000 + 1000)
    assert fc2.bytes == 4 * (4096 * 4096 + 4096)
    assert fc1.bytes == 4 * (25088 * 4096 + 4096)


@pytest.mark.parametrize("model", sorted(LAYERS))
def test_realistic_buckets_hold_all_gradients_and_end_with_backward(model: str) -> None:
    profile = by_model(realistic_profiles())[model]
    compute = profile.compute
    assert sum(bucket.bytes for bucket in profile.model.buckets) == profile.model.grad_bytes
    assert compute.fwd_s is not None
    assert profile.model.buckets[-1].ready_s == pytest.approx(compute.fwd_s + compute.bwd_s)
    assert compute.window_s == pytest.approx(compute.fwd_s + compute.bwd_s - profile.model.buckets[0].ready_s)


def test_resnet50_trains_367_images_a_second_on_one_v100() -> None:
    profile = by_model(realistic_profiles())["resnet50"]
    assert 128 / profile.compute.total_s == pytest.approx(367)


@pytest.mark.parametrize(
    ("name", "profiles"), [("dally", dally_profiles()), ("realistic", realistic_profiles())]
)
def test_the_shipped_files_are_what_their_importer_makes(name: str, profiles: tuple[Profile, ...]) -> None:
    assert by_model(load_profiles(name).profiles) == by_model(profiles)


@pytest.fixture
def gavel_table(tmp_path: Path) -> Path:
    entries = (
        "ResNet-18 (batch size 64)",
        "ResNet-50 (batch size 32)",
        "Transformer (batch size 64)",
        "LM (batch size 20)",
        "Recommendation (batch size 2048)",
        "CycleGAN",
        "A3C",
    )
    packed = {str((entry, gpus)): {"null": 2.0 * gpus} for entry in entries for gpus in (1, 2, 4)}
    packed |= {str((entry, 8)): {"null": 0.0} for entry in entries}
    apart = {str((entry, gpus)): {"null": 1.0 * gpus} for entry in entries for gpus in (1, 2, 4, 8)}
    names = ("k80", "p100", "v100")
    path = tmp_path / "table.json"
    path.write_text(
        json.dumps(dict.fromkeys(names, packed) | {f"{name}_unconsolidated": apart for name in names})
    )
    return path


def test_gavels_steps_per_second_are_summed_over_workers_and_zeros_are_dropped(gavel_table: Path) -> None:
    profile = gavel_profiles(gavel_table)[0]
    assert profile.compute.total_s == 0.5
    assert [point.shape.gpus_per_node for point in profile.tiers["machine"]] == [2, 4]
    assert [point.shape.nodes for point in profile.tiers["rack"]] == [2, 4, 8]
    timing = profile.tiers["rack"][2].iteration
    assert timing is not None
    assert timing.median_s == 1.0


def test_a_file_that_is_not_gavels_table_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"k80": {"ResNet-18": {"null": 1}}}')
    with pytest.raises(InputError, match=r"t\.json is not a table of Gavel's form"):
        gavel_profiles(tmp_path / "t.json")
    (tmp_path / "t.json").write_text("[]")
    with pytest.raises(InputError, match=r"Gavel's form: must be a JSON object of GPU types"):
        gavel_profiles(tmp_path / "t.json")


def test_gavels_4_and_8_servers_are_predicted_from_2_by_the_ring_factor(gavel_table: Path) -> None:
    profile = gavel_profiles(gavel_table)[0]
    # An iteration takes 0.5 s alone and 1 s on any number of servers: communication grows by 1.5 and 1.75.
    comm_s = (1.0**3 - 0.5**3) ** (1 / 3)
    expected = [(0.5**3 + (comm_s * factor) ** 3) ** (1 / 3) - 1 for factor in (1.5, 1.75)]
    assert [check.error for check in check_far(profile)] == pytest.approx(expected)
    assert profile.fit is not None
    assert profile.fit.held_out_max == pytest.approx(expected[1])
    assert "held-out iterations are mispredicted" in (profile.quality.flags[-1] if profile.quality else "")


def test_gavels_folder_will_do_as_well_as_its_file(gavel_table: Path) -> None:
    gavel_table.rename(gavel_table.with_name("simulation_throughputs.json"))
    assert import_profiles("gavel", gavel_table.parent)


def test_an_unknown_importer_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no importer philly; valid: gavel, pollux"):
        import_profiles("philly", tmp_path)


def joined_s(*parts: tuple[float, float]) -> float:
    """An iteration whose compute is 1 s, its communication that of measured ones, so many times each."""
    comm_s = sum((measured_s**3 - 1) ** (1 / 3) * times for measured_s, times in parts)
    return float((1 + comm_s**3) ** (1 / 3))


HALF_WAY = joined_s((4.0, 10 / 9 / 4), (6.0, 20 / 21 * 3 / 4))
"""2 and 4 GPUs between 2x2 in 4 s and 2x4 in 6 s: 3.5 GPUs a machine, and a ring of 6 instead of 4 or 8."""


def test_polluxs_uneven_placements_are_held_out(tmp_path: Path) -> None:
    steps = {"1": 1.0, "11": 2.0, "22": 4.0, "44": 6.0, "24": 4.0}
    rows = "".join(f"{placement},8,{step_s}\n" for placement, step_s in steps.items())
    for model in MODELS:
        (tmp_path / "traces" / model).mkdir(parents=True)
        (tmp_path / "traces" / model / "placements.csv").write_text(f"placement,local_bsz,step_time\n{rows}")
        for batch in (8, 16):
            table = f"progress,iteration,metric\n10,{80 // batch},0.5\n"
            (tmp_path / "traces" / model / f"validation-{batch}.csv").write_text(table)
    profile = import_profiles("pollux", tmp_path)[0]
    assert profile.fit is not None
    assert profile.fit.held_out_max == pytest.approx(HALF_WAY / 4.0 - 1)
    assert len(profile.fit.residuals) == 3


@pytest.mark.parametrize("text", ["[]", "{", '{"k80": {"x": {"null": 1}}}', '{"k80": 3}'])
def test_a_table_of_another_kind_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "simulation_throughputs.json").write_text(text)
    with pytest.raises(InputError, match="is not a table of Gavel's form"):
        import_profiles("gavel", tmp_path)


def test_a_gavel_table_without_one_gpu_is_one_line(tmp_path: Path) -> None:
    names = [f"{gpu_type}{suffix}" for gpu_type in GPU_TYPES for suffix in ("", "_unconsolidated")]
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps({name: {} for name in names}))
    with pytest.raises(InputError, match=r"has no throughput on one GPU"):
        import_profiles("gavel", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("placement,local_bsz\n1,8\n", "has no column step_time"),
        ("", "has no column local_bsz, placement, step_time"),
        ("placement,local_bsz,step_time\n1,8,fast\n", "must hold numbers in placement, local_bsz, step_time"),
        ("placement,local_bsz,step_time\n1,8\n", "must hold numbers in placement, local_bsz, step_time"),
    ],
)
def test_a_wrong_table_of_placements_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_placements(tmp_path / "p.csv")


def test_gavel_measured_points_are_predicted_exactly_and_others_flagged() -> None:
    profile = load_profiles("gavel").find("resnet-50", "p100")
    assert profile is not None
    packed = Shape(0, (4,), (), (Ring(4, Link(1e11), 1),), ("p100",))
    spread = Shape(1, (4, 4), (2,), (Ring(4, Link(1e11), 1), Ring(2, Link(1e10), 2)), ("p100",))
    exact, other = predict(profile, packed), predict(profile, spread)
    assert (exact.method, exact.extrapolated) == ("measured", False)
    assert exact.iteration_s == pytest.approx(4 / 18.55, rel=1e-3)
    assert other.extrapolated
    assert "4+4 not measured, taken from 2x1" in other.note


def test_uneven_placements_are_half_way_between_their_fullest_machine_and_their_mean() -> None:
    steps = {"1": 1.0, "11": 2.0, "22": 4.0, "44": 6.0}
    rows = [Measurement(tuple(map(int, name)), 8, step_s) for name, step_s in steps.items()]
    profile = pollux_profile("m", rows, 8, tuple(steps))
    assert predict(profile, flat_shape((2, 4))).iteration_s == pytest.approx(HALF_WAY)
    # 3 GPUs send 4/3 of the data where 2 sent 1 and 4 sent 6/4; 1.75 a machine.
    three_s = joined_s((2.0, 4 / 3 / 4), (4.0, 8 / 9 * 3 / 4))
    assert predict(profile, flat_shape((1, 2))).iteration_s == pytest.approx(three_s)
    assert predict(profile, flat_shape((2, 2))).method == "measured"


def test_a_batch_without_a_single_gpu_is_refused() -> None:
    with pytest.raises(InputError, match="model m: one GPU with local batch 9"):
        pollux_profile("m", [Measurement((1,), 8, 1.0)], 9, ("1",))


def test_only_the_named_section_of_a_document_changes() -> None:
    text = "a\n<!-- t -->\nold\n<!-- end t -->\nb"
    assert replace_section(text, "t", "new") == "a\n<!-- t -->\nnew\n<!-- end t -->\nb"
    with pytest.raises(InputError, match="no section"):
        replace_section(text, "u", "new")


@pytest.mark.parametrize("name", ["gavel", "pollux"])
class TestPublishedTables:
    pytestmark = needs_tables

    def test_the_shipped_files_are_what_the_tables_make(self, name: str) -> None:
        assert set(load_profiles(name).profiles) == set(import_published(name, TABLES / name))


class TestCommand:
    pytestmark = needs_tables

    def test_the_command_writes_the_four_sets(self, tmp_path: Path) -> None:
        result = CliRunner().invoke(main, [str(TABLES), str(tmp_path)])
        assert result.exit_code == 0, result.output
        for name in ("dally", "gavel", "pollux", "realistic"):
            assert load_profiles(tmp_path / name).profiles == load_profiles(name).profiles


def placements(folder: Path, model: str, rows: str) -> None:
    (folder / model).mkdir()
    (folder / model / "placements.csv").write_text(f"placement,local_bsz,step_time\n{rows}")


def test_anybodys_folder_of_polluxs_form_has_its_own_origin_models_and_gpus(tmp_path: Path) -> None:
    placements(tmp_path, "mine", "1,8,1.0\n1,16,1.5\n1,32,2.5\n88,16,3.0\n")
    (unsaid,) = import_profiles("pollux", tmp_path)
    assert (unsaid.provenance.source, unsaid.provenance.licence) == (
        "unknown, mine/placements.csv, local batch 16",
        "unknown",
    )
    assert (unsaid.env.gpu_type, unsaid.env.link_speed_bps, unsaid.learning) == (None, None, None)
    assert [(each.local_batch, each.total_s) for each in unsaid.compute.other_batches] == [
        (8, 1.0),
        (32, 2.5),
    ]
    assert [point.shape.gpus_per_node for point in unsaid.tiers["rack"]] == [8]
    (said,) = import_profiles("pollux", tmp_path, Origin("our lab", "CC0"), MeasuredHardware("a100", 1e11))
    assert said.provenance.source.startswith("our lab, ")
    assert (said.env.gpu_type, said.provenance.licence) == ("a100", "CC0")


def test_every_batch_makes_a_profile_each_which_a_set_may_hold(tmp_path: Path) -> None:
    placements(tmp_path, "mine", "1,8,1.0\n1,16,1.5\n")
    made = import_profiles("pollux", tmp_path, every_batch=True)
    paths = write_profiles(made, tmp_path / "out")
    assert [path.name for path in paths] == ["mine-b8.json", "mine-b16.json"]
    assert len(load_profiles(tmp_path / "out").profiles) == 2


@pytest.mark.parametrize(
    ("rows", "flag"),
    [
        ("1,8,1.0\n1,16,2.5\n", "samples/s fall by 20 % from local batch 8 to 16"),
        ("1,8,1.0\n1,16,0.8\n", "an iteration with local batch 16 is shorter than with 8"),
        ("1,16,1.0\n2,16,0.7\n", "an iteration on 1x2 GPUs is 30 % shorter than on one"),
        ("1,16,1.0\n11,16,2.0\n11,16,2.2\n", "placement 11 has several rows: the fastest counts"),
    ],
)
def test_what_contradicts_itself_in_a_table_is_flagged(tmp_path: Path, rows: str, flag: str) -> None:
    placements(tmp_path, "mine", rows)
    (profile,) = import_profiles("pollux", tmp_path)
    assert profile.quality is not None
    assert flag in profile.quality.flags


def test_a_gpu_that_is_slower_than_an_older_one_is_flagged_on_both(tmp_path: Path) -> None:
    entry = {"('LSTM (batch size 4)', 1)": {"null": 2.0}}
    fast = {"('LSTM (batch size 4)', 1)": {"null": 4.0}}
    (tmp_path / "t.json").write_text(json.dumps({"k80": fast, "h100": entry, "mystery": entry}))
    h100, k80, mystery = import_profiles("gavel", tmp_path / "t.json")
    flag = "one h100 is 100 % slower than one k80, 0.5 s and 0.25 s an iteration"
    assert h100.quality == k80.quality == Quality(flags=(flag,))
    assert mystery.quality is None
    assert (mystery.model.name, mystery.model.local_batch) == ("lstm", 4)
    assert mystery.provenance.licence == "unknown"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("11,8,1.0\n", r"placements\.csv has no row of one GPU \(placement 1\)"),
        ("1,8,0\n", r"must hold numbers in .*: placement 1, 8, 0\.0 are not all positive"),
        ("1,-8,1\n", "are not all positive"),
        ("0,8,1\n", "are not all positive"),
        ("1,8,nan\n", "are not all positive"),
    ],
)
def test_a_folder_that_makes_no_profile_is_one_line(tmp_path: Path, rows: str, message: str) -> None:
    placements(tmp_path, "mine", rows)
    with pytest.raises(InputError, match=message):
        import_profiles("pollux", tmp_path)


def test_a_folder_without_tables_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no MODEL/placements\.csv, so it is not of Pollux's form"):
        import_profiles("pollux", tmp_path)


def test_nodes_that_share_gpus_unevenly_keep_them_all(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("num_nodes,num_replicas,local_bsz,step_time\n3,8,4,1.5\n")
    assert read_scalability(tmp_path / "s.csv")[0].nodes == (3, 3, 2)
