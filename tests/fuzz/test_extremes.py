"""Numbers beyond all meaning in options, knobs and traces, and escape sequences: one line, or harmless."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dally.commands import main
from dally.policies.registry import knobs, policy_names, policy_type
from tests.fuzz.formats import COMMON_CSV, EXPLICIT_TOML
from tests.fuzz.limits import bounded_time

EXTREMES = ("1e18", "-1e18", "1e308", "1e-308", "9e29", "nan", "inf", "0", "-1", "9" * 30)
LONGEST_S = 20.0
SCREENFUL = 1_300
WORKLOAD = ("--trace", "batch:jobs=3,gpus=2", "--cluster", "demo", "--profiles", "dally")
SIMULATION = ("simulate", *WORKLOAD, "--model-mix", "resnet50=1", "--policy", "srsf-delay")
NEEDS = {
    "--repair-h": ("--mtbf-h", "5"),
    "--priority-ratio": ("--priorities", "on"),
    "--load": ("--trace", "poisson:jobs=3,gpus=2,gap_s=5"),
}
TRACE = COMMON_CSV.replace(b"vgg11", b"resnet50").replace(b"elastic,1,8,", b"elastic,1,8,7200")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


_outs = (f"out{number}" for number in range(10**9))


def said(*argv: str) -> str:
    """What a command prints; it has no traceback, does not take long, and refuses in few words."""
    out = ("--out", next(_outs)) if argv[0] == "simulate" else ()
    with bounded_time(LONGEST_S):
        result = CliRunner().invoke(main, [*argv, *out])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(f"dally {' '.join(argv)}") from result.exception
    assert result.exit_code != 1 or len(result.stderr) <= SCREENFUL, argv
    assert "\x1b" not in result.output, argv
    return result.output


def numeric(command: str) -> Iterator[str]:
    """The options of a command that are numbers."""
    found = main.get_command(click.Context(main), command)
    assert found
    for each in found.params:
        if isinstance(each, click.Option) and isinstance(
            each.type, click.types.FloatParamType | click.types.IntParamType
        ):
            yield each.opts[0]


@pytest.mark.parametrize("option", [*numeric("simulate")])
def test_an_option_of_a_simulation_may_be_any_number(option: str) -> None:
    for extreme in EXTREMES:
        said(*SIMULATION, *NEEDS.get(option, ()), f"{option}={extreme}")


@pytest.mark.parametrize("policy", policy_names())
def test_a_knob_may_be_any_number(policy: str) -> None:
    for knob in knobs(policy_type(policy)):
        for extreme in ("1e12", "1e-308", "9" * 30):
            said(*SIMULATION[:-1], f"{policy}:{knob.name}={extreme}")


def replaced(document: bytes, pattern: bytes, by: bytes) -> Iterator[bytes]:
    """The document with each match of a pattern replaced, one at a time."""
    for found in re.finditer(pattern, document):
        yield document[: found.start()] + found.expand(by) + document[found.end() :]


def test_a_trace_may_have_any_number(tmp_path: Path) -> None:
    for extreme in ("1e18", "1e308", "1e-308", "9" * 400):
        for document in replaced(TRACE, rb"(?<=,)\d[\d.]*(?=,)", extreme.encode()):
            (tmp_path / "trace.csv").write_bytes(document)
            inputs = ("trace.csv", "--cluster", "demo", "--skip-bad")
            said("simulate", "--policy", "srsf-delay", "--profiles", "dally", "--trace", *inputs)
            said("advise", *inputs, "--policy", "srsf-delay", "--processes", "1")


def test_others_words_reach_the_terminal_as_text(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_bytes(EXPLICIT_TOML)
    for document in replaced(TRACE, rb"(?<=[\n,\"])([a-z]\w*)(?=[,\"\n])", rb"\1" + b"\x1b[2J"):
        (tmp_path / "trace.csv").write_bytes(document)
        out = next(_outs)
        said("trace", "trace.csv")
        inputs = ("trace.csv", "--cluster", "cluster.toml", "--skip-bad")
        CliRunner().invoke(main, ["simulate", "--policy", "fifo", "--trace", *inputs, "--out", out])
        for job in ("a", "b", "a\x1b[2J", "b\x1b[2J"):
            said("why", job, "--run", f"{out}/fifo")
        said("advise", *inputs, "--processes", "1", "--policy", "srsf-delay")
    for document in replaced(EXPLICIT_TOML, rb'(?<=")(\w+)(?=")', rb"\1\\u001b[2J"):
        (tmp_path / "cluster.toml").write_bytes(document)
        said("cluster", "cluster.toml")
