import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main

HEADER = "job_id,submit_s,gpus,duration_s,user,group,model,status\n"


def dally(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["trace", *map(str, words)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + "a,0,1,60,u,,m[x],COMPLETED\nb,10,8,0,,,,\nc,20,8,120,,,,FAILED\n")
    return path


def test_the_summary_shows_the_figures() -> None:
    result = dally("dally-batch")
    assert result.exit_code == 0
    for text in ("13,054", "500", "bert-large 125", "54.0 %"):
        assert text in result.output


def test_json_holds_the_figures_and_what_was_left_out(trace: Path) -> None:
    figures = json.loads(dally(trace, "--skip-bad", "--json").output)
    assert figures["gpus"] == {"1": 1, "8": 1}
    assert figures["dropped"] == {"duration_s is 0": 1}
    assert figures["users"] == 1
    assert figures["models"] == {"": 1, "m[x]": 1}
    assert figures["duration_percentiles_s"]["50"] == 60
    assert figures["gpu_hours"] == pytest.approx((60 + 8 * 120) / 3600)
    assert figures["sha256"] == hashlib.sha256(trace.read_bytes()).hexdigest()


def test_csv_output_has_the_digest_the_summary_states(tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    assert dally("bursty:jobs=50", "--seed", "4", "--to", "csv", "-o", out).output == ""
    stated = json.loads(dally("bursty:jobs=50", "--seed", "4", "--json").output)["sha256"]
    assert hashlib.sha256(out.read_bytes()).hexdigest() == stated
    assert dally("bursty:jobs=50", "--seed", "4", "--to", "csv").output == out.read_text()


def test_conversion_says_what_was_left_out_on_standard_error(trace: Path) -> None:
    result = dally(trace, "--to", "csv", "--skip-bad", "--model-mix", "q=1")
    assert result.stdout == HEADER + "a,0,1,60,u,,m[x],COMPLETED\nc,20,8,120,,,q,FAILED\n"
    assert result.stderr == "dally: left out 1: duration_s is 0\n"


def test_clamping_and_slicing(trace: Path) -> None:
    result = dally(trace, "--to", "csv", "--min-duration-s", "5", "--from-s", "10", "--to-s", "20")
    assert result.stdout == HEADER + "b,0,8,5,,,,\n"


def test_bad_input_is_one_line_and_leaves_the_old_file(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.csv"
    out.write_text("old")
    result = dally(trace, "--to", "csv", "-o", out)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "t.csv, line 3: job b: duration_s is 0" in result.stderr
    assert "--skip-bad" in result.stderr
    assert "--min-duration-s" in result.stderr
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.csv", "t.csv"]


@pytest.mark.parametrize(
    "words",
    [
        ("nowhere.csv",),
        ("batch:x=1",),
        ("batch", "--model-mix", "x"),
        ("batch", "--from-s", "9"),
        ("batch", "--min-duration-s", "nan"),
        ("batch", "--to", "csv", "-o", "/dev/null"),
        ("batch", "--to", "csv", "-o", "/no/such/folder/x.csv"),
    ],
)
def test_bad_input_exits_1_with_one_line(words: tuple[str, ...]) -> None:
    result = dally(*words)
    assert result.exit_code == 1
    assert result.stderr.startswith("dally: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [(), ("batch", "-o", "x"), ("batch", "--json", "--to", "csv"), ("batch", "--format", "xml")],
)
def test_wrong_usage_exits_2(words: tuple[str, ...]) -> None:
    assert dally(*words).exit_code == 2


def test_a_reader_that_stops_early_causes_no_traceback() -> None:
    code = "from dally.commands import main; main()"
    words = [sys.executable, "-c", code, "trace", "batch:jobs=5000", "--to", "csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(30)
