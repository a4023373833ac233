"""The figure of a study, from what its runs left."""

from pathlib import Path

from click.testing import CliRunner

from analysis.studies.study import results
from analysis.studies.study_figure import bars, main
from dally.commands import main as dally
from simulator.sweep.plan import read_plan
from simulator.sweep.work import Store

STUDY = """policies = ["srtf", "fifo"]
knowledge = ["exact", "none"]
cluster = "demo"
trace = "venus-like:jobs=80,gpus=1:50/4:30/16:20,max_s=20000"
load = [1.0, 2.0]
"""


def test_it_draws_what_there_is(tmp_path: Path) -> None:
    file, out, drawn = tmp_path / "small.toml", tmp_path / "runs", tmp_path / "small.png"
    file.write_text(STUDY)
    arguments = [str(file), str(drawn), "--out", str(out)]
    early = CliRunner().invoke(main, arguments)
    assert (early.exit_code, "no results of" in early.output) == (1, True)
    swept = CliRunner().invoke(dally, ["sweep", str(file), "--out", str(out), "--workers", "1"])
    assert swept.exit_code == 0, swept.output
    (policy,) = bars(results(read_plan(file), Store(out, make=False))["exact"]).items()
    name, (value, low, high) = policy
    assert (name, low < value < high) == ("fifo", True)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert drawn.read_bytes()[:4] == b"\x89PNG"
