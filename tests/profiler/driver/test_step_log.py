from collections.abc import Sequence

import pytest

from dally.errors import InputError
from profiler.driver.step_log import COMMON, StepLog, best_log, parse_steps_from


def seconds(steps_from: str, lines: Sequence[str], apart_s: float = 1.0) -> tuple[str, list[float]]:
    """By which pattern, and what, lines that come so many seconds apart tell."""
    logs = [StepLog(pattern) for pattern in parse_steps_from(steps_from)]
    for number, line in enumerate(lines):
        for log in logs:
            log.read(line, number * apart_s)
    best = best_log(logs, 1)
    return (best.pattern.name, best.seconds) if best else ("", [])


def test_the_group_of_a_regular_expression_is_the_seconds_of_a_step() -> None:
    lines = ["loading", "took 0.5 s, loss 3", "took 1e-1 s, loss 2"]
    assert seconds(r"took (\S+) s", lines)[1] == [0.5, 0.1]


def test_groups_may_be_milliseconds_or_steps_in_a_second() -> None:
    assert seconds(r"(?P<ms>\d+)ms", ["250ms"])[1] == [0.25]
    assert seconds(r"(?P<rate>\S+) steps/s", ["4 steps/s", "0 steps/s"])[1] == [0.25]


def test_a_number_of_a_step_is_timed_by_when_its_line_comes() -> None:
    lines = ["at 10", "at 20", "something else", "at 30"]
    assert seconds(r"at (?P<step>\d+)", lines, apart_s=5.0)[1] == [0.5, 1.0]


def test_a_step_that_several_ranks_tell_counts_once_and_a_new_epoch_goes_on() -> None:
    lines = [f"epoch 1 step {step}" for step in (8, 8, 9, 9, 8, 0, 0, 1)]
    assert seconds("step (?P<step>.)", lines)[1] == [2.0, 2.0]


def test_json_lines_tell_seconds_or_the_number_of_a_step() -> None:
    lines = ['{"step": 1, "seconds": 0.5, "loss": 2}', '{"step": 1, "seconds": 0.6}', "{'step': 2}", "{"]
    assert seconds("jsonl", lines)[1] == [0.5]
    assert seconds("jsonl", ['{"step": 4}', '{"step": 8}'], apart_s=2.0)[1] == [0.5]


def test_json_of_another_form_is_passed_over() -> None:
    others = [
        '{"step": "warm up"}',
        '{"step": null}',
        '{"seconds": NaN}',
        '{"seconds": -1}',
        '{"step": true}',
    ]
    assert seconds("", [*others, "step time: 0.5 s"]) == ("step time", [0.5])
    assert seconds("jsonl", [*others, '{"step": null, "seconds": 0.7}'])[1] == [0.7]


@pytest.mark.parametrize(
    ("line", "told_s"),
    [
        ("elapsed time per iteration (ms): 512.5 | learning rate: 1.5E-04", 0.5125),
        ("steps: 10 loss: 4.5123 iter time (s): 0.512 samples/sec: 31.250", 0.512),
        ("train_step_timing in s=0.512, loss=1", 0.512),
        ("completed step: 7, seconds: 2.345, TFLOP/s/device: 100.1", 2.345),
        ("Epoch: [0][  10/5005]\tTime  0.412 ( 0.612)\tData  0.001", 0.412),
        ("Epoch(train) [1][50/100]  lr: 1.0e-02  time: 0.3342  data_time: 0.0123", 0.3342),
        ("step 12 | step time: 0.5 s", 0.5),
        ("iteration time 512 ms", 0.512),
        ("iter 100: loss 3.1234, time 245.23ms, mfu 12.34%", 0.24523),
        ("step 3 elapsed 4s 120ms/step", 0.12),
        ("  1%|          | 12/1000 [00:05<07:12,  2.50it/s, loss=2]", 0.4),
        ("  1%|          | 12/1000 [00:15<27:12,  1.25s/it]", 1.25),
        ('{"step": 3, "seconds": 0.7}', 0.7),
    ],
)
def test_what_is_commonly_printed_is_read(line: str, told_s: float) -> None:
    assert seconds("", [line])[1] == [pytest.approx(told_s)]


@pytest.mark.parametrize(
    "line",
    [
        "step:  1  loss:  8.13  memory: 40.5GiB  tps: 7,500",
        "[2026-11-26 10:00:00] iteration       1/  500 | loss 3",
        "Training Step #1: loss 2",
    ],
)
def test_lines_with_nothing_but_a_number_are_timed(line: str) -> None:
    assert seconds("", [line, line.replace(" 1", " 3").replace("#1", "#3")]) == ("number of the step", [0.5])


def test_what_only_looks_like_a_step_time_is_not_read() -> None:
    assert seconds(
        "", ["elapsed time: 12 s", "step time", "", "loading shards 3/4", "epoch 3 took 50 s"]
    ) == ("", [])


@pytest.mark.parametrize("text", ["(", "no group", "(?P<minutes>.)"])
def test_an_expression_that_can_tell_nothing_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--steps-from"):
        parse_steps_from(text)


def test_a_group_that_is_no_number_is_told_with_its_line() -> None:
    with pytest.raises(
        InputError, match=r"step time 'soon' is no number of 0 or more, in the line 'took soon'"
    ):
        seconds(r"took (\w+)", ["took soon"])


def test_patterns_have_names_of_their_own() -> None:
    assert len({pattern.name for pattern in COMMON}) == len(COMMON)
