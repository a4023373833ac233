"""`profile-models add` and `remove`."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.cluster import write_toml
from dally.commands import main as dally
from dally.profiles.files import load_profiles
from dally.runs.records import read_run
from dally.testing.worlds import racks
from profiler.commands import main
from tests.profiler.recorded.jobs import entry, write

TIMES = ("--machine=1.05", "--rack=1.30", "--network=2.60", "--gpus=16")
TRACE = "job_id,submit_s,gpus,duration_s,model\nfirst,0,16,3600,my-llm\nsecond,0,16,3600,my-llm\n"


def invoke(folder: Path, *arguments: str) -> Result:
    out = () if "--help" in arguments else ("--out", str(folder))
    return CliRunner().invoke(main, [*arguments, *out])


def shapes(folder: Path) -> list[tuple[str, int, int, float]]:
    """What the only profile of a folder holds."""
    (profile,) = load_profiles(folder).profiles
    return [
        (tier, point.shape.nodes, point.shape.gpus_per_node, point.iteration.median_s)
        for tier, points in profile.tiers.items()
        for point in points
        if point.iteration
    ]


def test_seconds_that_are_typed_in_become_a_profile(tmp_path: Path) -> None:
    result = invoke(tmp_path, "add", "my-llm", *TIMES)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("my-llm (given)\n")
    assert "2.48" in result.output
    assert shapes(tmp_path) == [("machine", 1, 16, 1.05), ("rack", 2, 8, 1.3), ("network", 2, 8, 2.6)]


def test_a_time_may_say_how_the_gpus_lay(tmp_path: Path) -> None:
    times = ("--machine=1x1=0.9", "--machine=1x8=1.05", "--rack=4x4=1.3", "--gpu-type=h100")
    assert invoke(tmp_path, "add", "my-llm", *times).exit_code == 0
    assert shapes(tmp_path) == [("machine", 1, 1, 0.9), ("machine", 1, 8, 1.05), ("rack", 4, 4, 1.3)]
    assert [path.name for path in tmp_path.iterdir()] == ["my-llm-h100.json"]


def test_it_is_listed_as_given(tmp_path: Path) -> None:
    invoke(tmp_path, "add", "my-llm", *TIMES)
    listed = CliRunner().invoke(dally, ["models", "--profiles", str(tmp_path)])
    cells = ["my-llm", "any", "given", "-", "-", "-", "1x16", "1.00"]
    assert listed.output.splitlines()[1].split()[:8] == cells


def test_a_simulation_goes_by_it(tmp_path: Path) -> None:
    invoke(tmp_path / "profiles", "add", "my-llm", *TIMES)
    (tmp_path / "trace.csv").write_text(TRACE)
    options = {"trace": "trace.csv", "profiles": "profiles", "out": "out"}
    named = (f"--{name}={tmp_path / value}" for name, value in options.items())
    result = CliRunner().invoke(dally, ["simulate", "--cluster=demo", "--policy=fifo", *named])
    assert result.exit_code == 0, result.output
    assert read_run(tmp_path / "out" / "fifo")["predictions"]["modes"] == ["given"]


def test_it_is_removed_again(tmp_path: Path) -> None:
    invoke(tmp_path, "add", "my-llm", *TIMES)
    invoke(tmp_path, "add", "other", *TIMES)
    assert invoke(tmp_path, "remove", "my-llm").output == f"removed: {tmp_path}/my-llm.json\n"
    assert load_profiles(tmp_path).models == ("other",)


def test_of_several_gpu_types_the_one_named_is_removed(tmp_path: Path) -> None:
    for gpu_type in ("a100", "h100"):
        invoke(tmp_path, "add", "my-llm", *TIMES, f"--gpu-type={gpu_type}")
    refused = invoke(tmp_path, "remove", "my-llm")
    assert refused.exit_code == 1
    assert "has 2 profiles of model my-llm, not one; types: a100, h100" in refused.output
    assert invoke(tmp_path, "remove", "my-llm", "--gpu-type=a100").exit_code == 0
    assert [profile.env.gpu_type for profile in load_profiles(tmp_path).profiles] == ["h100"]


def test_the_profile_of_any_type_is_removed_beside_one_of_a_type(tmp_path: Path) -> None:
    invoke(tmp_path, "add", "my-llm", *TIMES)
    invoke(tmp_path, "add", "my-llm", *TIMES, "--gpu-type=h100")
    removed = invoke(tmp_path, "remove", "my-llm", "--gpu-type=any")
    assert removed.output == f"removed: {tmp_path}/my-llm.json\n"
    assert [profile.env.gpu_type for profile in load_profiles(tmp_path).profiles] == ["h100"]


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    invoke(tmp_path, "add", "my-llm", *TIMES)
    before = (tmp_path / "my-llm.json").read_bytes()
    result = invoke(tmp_path, "add", "my-llm", "--rack=1", "--network=3", "--gpus=4")
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "my-llm.json exists; `profile-models remove` takes it away" in result.output
    assert (tmp_path / "my-llm.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--rack=1.3", "--gpus=16"), "step times at two places or more are needed"),
        (("--rack=1.3", "--network=2"), "--rack 1.3 does not say on how many GPUs; add --gpus"),
        (("--rack=1", "--network=2", "--gpus=15"), "15 GPUs are not 2 equal halves"),
        (("--rack=1x4=1", "--network=2x2=2"), "--rack 1 is of 1x4: --machine takes 1 machine"),
        (("--rack=2", "--rack=3", "--gpus=4"), "rack 2x2 has two step times"),
        (("--rack=nan", "--network=2", "--gpus=4"), "'nan' must be a number above 0"),
        (("--rack=2x=1", "--network=2", "--gpus=4"), "must be SECONDS or MACHINESxGPUS=SECONDS"),
    ],
)
def test_bad_input_is_told_and_writes_nothing(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    result = invoke(tmp_path / "profiles", "add", "my-llm", *arguments)
    assert result.exit_code in (1, 2)
    assert said in result.output
    assert not list(tmp_path.iterdir())


def test_a_set_of_cpus_takes_no_profile_that_counts_as_of_gpus(tmp_path: Path) -> None:
    invoke(tmp_path, "add", "my-llm", *TIMES)
    path = tmp_path / "my-llm.json"
    path.write_text(path.read_text().replace('"given"', '"gloo"'))
    result = invoke(tmp_path, "add", "other", *TIMES)
    assert "mixes CPU and GPU profiles (given, gloo)" in result.output
    assert [each.name for each in tmp_path.iterdir()] == ["my-llm.json"]


def test_an_unknown_model_is_not_removed(tmp_path: Path) -> None:
    result = invoke(tmp_path, "remove", "my-llm")
    assert (result.exit_code, result.output) == (
        1,
        f"profile-models: no profile of model my-llm in {tmp_path}; there are none\n",
    )


def recorded(folder: Path, hosts: Sequence[str], step_s: float, group: str = "mesh_dp") -> str:
    """The records of a job with a rank on each of these hosts."""
    folder.mkdir()
    ranks = range(len(hosts))
    for rank, host in enumerate(hosts):
        step = [entry("1", "nccl:all_reduce", [1_000_000])]
        write(folder, rank, len(hosts), {"1": (ranks, group)}, step, host=host, step_ns=round(step_s * 1e9))
    return f"--recorded={folder}"


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(write_toml(racks([[4, 4], [4]])))  # r0m0 and r0m1 in one rack, r1m0 in another
    return f"--cluster={path}"


def test_recorded_jobs_become_a_profile_by_where_they_ran(tmp_path: Path, cluster: str) -> None:
    runs = [
        recorded(tmp_path / "17", ["r0m0"] * 4, 1.0),
        recorded(tmp_path / "18", ["r0m0.example.org", "r0m0.example.org", "r0m1", "r0m1"], 1.25),
        recorded(tmp_path / "19", ["r0m0", "r0m0", "r1m0", "r1m0"], 2.0),
        recorded(tmp_path / "20", ["r0m1", "r0m1", "r1m0", "r1m0"], 3.0),
    ]
    result = invoke(tmp_path / "out", "add", "my-llm", *runs, cluster)
    assert result.exit_code == 0, result.output
    assert shapes(tmp_path / "out") == [("machine", 1, 4, 1.0), ("rack", 2, 2, 1.25), ("network", 2, 2, 2.5)]


def test_one_record_tells_what_every_place_costs(tmp_path: Path, cluster: str) -> None:
    run = recorded(tmp_path / "17", ["r0m0"] * 4, 1.0)
    options = ("--local-batch=8", "--precision=bf16")
    assert invoke(tmp_path / "out", "add", "my-llm", run, cluster, *options).exit_code == 0
    (profile,) = load_profiles(tmp_path / "out").profiles
    assert (profile.plan, profile.model.local_batch, profile.model.precision) == ("dp=4", 8, "bf16")
    assert [(each.collective, each.bytes, each.size) for each in profile.events] == [
        ("all_reduce", 2_000_000, 4)
    ]
    (tmp_path / "trace.csv").write_text(
        "job_id,submit_s,gpus,duration_s,model\n" + "".join(f"j{n},0,4,3600,my-llm\n" for n in range(6))
    )
    named = {"trace": "trace.csv", "profiles": "out", "out": "runs"}
    argv = ["simulate", cluster, "--policy=fifo", "--policy=dally", "--contention"]
    result = CliRunner().invoke(dally, [*argv, *(f"--{name}={tmp_path / at}" for name, at in named.items())])
    assert result.exit_code == 0, result.output
    told = read_run(tmp_path / "runs" / "dally")["predictions"]
    assert (told["modes"], told["models_without_profile"]) == (["nccl"], [])


def test_one_training_may_be_recorded_by_several_plans(tmp_path: Path, cluster: str) -> None:
    runs = [recorded(tmp_path / f"{ranks}", ["r0m0"] * ranks, 1.0) for ranks in (2, 4)]
    for run in runs:
        assert invoke(tmp_path / "out", "add", "my-llm", run, cluster).exit_code == 0
    profiles = load_profiles(tmp_path / "out")
    plans = {
        gpus: profile.plan for gpus in (1, 2, 3, 4, 64) if (profile := profiles.find("my-llm", gpus=gpus))
    }
    assert plans == {1: "dp=2", 2: "dp=2", 3: "dp=4", 4: "dp=4", 64: "dp=4"}
    refused = invoke(tmp_path / "out", "remove", "my-llm")
    assert "has 2 profiles of model my-llm, not one; types: any; plans: dp=2, dp=4" in refused.output
    assert invoke(tmp_path / "out", "remove", "my-llm", "--plan=dp=2").exit_code == 0
    assert [profile.plan for profile in load_profiles(tmp_path / "out").profiles] == ["dp=4"]


def test_one_plan_may_be_recorded_with_several_batches_and_precisions(tmp_path: Path, cluster: str) -> None:
    out = tmp_path / "out"
    seconds = {(8, "bf16"): 1.0, (32, "bf16"): 4.0, (8, "fp32"): 2.0, (8, "fp8"): 0.5}
    for number, ((batch, precision), step_s) in enumerate(seconds.items()):
        run = recorded(tmp_path / f"{number}", ["r0m0"] * 4, step_s)
        told = (f"--local-batch={batch}", f"--precision={precision}")
        assert invoke(out, "add", "my-llm", run, cluster, *told).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "my-llm-dp-4-b32-bf16.json",
        "my-llm-dp-4-b8-fp32.json",
        "my-llm-dp-4-b8-fp8.json",
        "my-llm-dp-4.json",
    ]
    again = invoke(out, "add", "my-llm", run, cluster, *told)
    assert "my-llm-dp-4-b8-fp8.json exists; `profile-models remove` takes it away" in again.output

    profiles = load_profiles(out)

    def chosen(batch: int | None = None, precision: str | None = None) -> tuple[int | None, str | None]:
        found = profiles.find("my-llm", None, batch, 4, "dp=4", precision)
        assert found is not None
        return found.model.local_batch, found.model.precision

    assert (chosen(7, "fp32"), chosen(8, "fp8"), chosen(9), chosen(40)) == (
        (8, "fp32"),
        (8, "fp8"),
        (8, "bf16"),
        (32, "bf16"),
    )
    assert chosen(8, "fp4") == (8, "bf16")  # the nearest that is known

    listed = CliRunner().invoke(dally, ["models", "--profiles", str(out)]).output.splitlines()[1:]
    assert [line.split()[3:6] for line in listed if line.startswith("my-llm")] == [
        ["dp=4", "bf16", "8"],
        ["dp=4", "fp32", "8"],
        ["dp=4", "fp8", "8"],
        ["dp=4", "bf16", "32"],
    ]
    refused = invoke(out, "remove", "my-llm", "--local-batch=8")
    assert "plans: dp=4; local batches: 8, 32; precisions: bf16, fp32, fp8" in refused.output
    removed = invoke(out, "remove", "my-llm", "--local-batch=8", "--precision=bf16")
    assert removed.output == f"removed: {out}/my-llm-dp-4.json\n"
    assert len(load_profiles(out).profiles) == 3


def test_a_profile_that_says_no_batch_does_not_take_the_place_of_one_that_does(
    tmp_path: Path, cluster: str
) -> None:
    run = recorded(tmp_path / "17", ["r0m0"] * 4, 1.0)
    assert invoke(tmp_path / "out", "add", "my-llm", run, cluster, "--local-batch=8").exit_code == 0
    refused = invoke(tmp_path / "out", "add", "my-llm", run, cluster)
    assert (refused.exit_code, refused.output.count("\n")) == (1, 1)
    assert "my-llm-dp-4.json exists" in refused.output
    (profile,) = load_profiles(tmp_path / "out").profiles
    assert profile.model.local_batch == 8


def test_what_is_of_records_is_refused_without_them(tmp_path: Path) -> None:
    result = invoke(tmp_path, "add", "my-llm", *TIMES, "--local-batch=8")
    assert "--local-batch and --precision are of recorded jobs" in result.output


def test_recorded_and_typed_times_go_together(tmp_path: Path, cluster: str) -> None:
    run = recorded(tmp_path / "17", ["r0m0", "r0m0", "r0m1", "r0m1"], 1.25)
    assert invoke(tmp_path / "out", "add", "my-llm", run, cluster, "--machine=1x4=1").exit_code == 0
    assert shapes(tmp_path / "out") == [("machine", 1, 4, 1.0), ("rack", 2, 2, 1.25)]


@pytest.mark.parametrize(
    ("hosts", "group", "said"),
    [
        (("r0m0", "r0m1", "r0m0", "r0m1"), "mesh_dp", "ranks do not fill one host after the other"),
        (("r0m0", "r0m0", "r9m9", "r9m9"), "mesh_dp", "it ran on r9m9, which is not in cluster"),
        (("r0m0", "r0m0", "r0m1", "r0m1"), "mesh_tp", "they are not one training: "),
    ],
)
def test_records_that_make_no_profile_are_one_line(
    tmp_path: Path, cluster: str, hosts: tuple[str, ...], group: str, said: str
) -> None:
    runs = [
        recorded(tmp_path / "17", ["r0m0"] * 4, 1.0),
        recorded(tmp_path / "18", hosts, 1.25, group),
    ]
    result = invoke(tmp_path / "out", "add", "my-llm", *runs, cluster)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert said in result.output
    assert not (tmp_path / "out").exists()


def test_records_need_a_cluster_and_all_ranks(tmp_path: Path, cluster: str) -> None:
    run = recorded(tmp_path / "17", ["r0m0"] * 4, 1.0)
    assert "--recorded and --cluster belong together" in invoke(tmp_path / "out", "add", "m", run).output
    (tmp_path / "17" / "rank-00002.json.gz").unlink()
    result = invoke(tmp_path / "out", "add", "my-llm", run, cluster, "--rack=2x2=2")
    assert "17: 3 of 4 ranks left a record, all must" in result.output
