"""Advice is said plainly: what changes, whether the calibration bears it, who loses, where to start."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.advise import sentences
from analysis.advise.advice import SETTINGS, Advice, PolicyComparison, advise, plan_simulations
from analysis.advise.simulated import runner
from analysis.advise.site import ModelAssumption
from dally.jobs.knowledge import Knowledge, Known
from dally.profiles.files import load_profiles
from tests.analysis.advise.histories import Row, held_back, scheduled, site

ROWS = [Row(0, 0, 100, 8), Row(10, 100, 50, 8), Row(20, 180, 50, 8, user="bob")]


@pytest.fixture
def advice(tmp_path: Path) -> Advice:
    """Three jobs, of which each needs the whole cluster; simulated waits are 10 s too short on average."""
    here = site(tmp_path, ROWS)
    with runner(here, 1, lambda task: None) as simulate:
        return advise(
            here, plan_simulations(here, "slurm", "srsf-delay", [ModelAssumption("as told")]), simulate
        )


def compared(advice: Advice) -> PolicyComparison:
    assert advice.comparison is not None
    return advice.comparison


def with_change(advice: Advice, least: float, change: float, most: float) -> Advice:
    """The advice had it come to such a change of all completion times."""
    found = compared(advice)
    whole = found.effects.whole
    told = replace(whole, least=least, change=change, most=most, dally_s=whole.today_s * (1 + change))
    return replace(advice, comparison=replace(found, effects=replace(found.effects, whole=told)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            (-0.3, -0.25, -0.2),
            "Under Dally, jobs would have ended 25 % sooner on average (20 % to 30 %, by what",
        ),
        ((0.1, 0.1, 0.1), "Under Dally, jobs would have ended 10 % later on average; no profiles were given"),
        ((-0.3, -0.2, 0.03), "depends on what the jobs train: completion times -30 % to +3 % on average"),
    ],
)
def test_the_title_tells_the_change_and_its_range(
    advice: Advice, changes: tuple[float, float, float], said: str
) -> None:
    assert said in sentences.title(with_change(advice, *changes))


def test_a_difference_within_the_error_of_the_simulation_is_no_conclusion(advice: Advice) -> None:
    assert advice.bias_s == pytest.approx(10)
    large, small = (with_change(advice, change, change, change) for change in (-0.5, -0.05))
    assert sentences.finding_lines(large)[2].startswith("It stands out")
    assert small.concluded is None
    assert sentences.title(small).startswith("No conclusion: Dally would change less than")
    said = sentences.finding_lines(small)
    assert said[0].startswith("The difference is 7 s a job, the error of the simulated mean 10 s")
    lines = [*said, *sentences.summary_lines(small)]
    assert not any("Under Dally" in line or "sooner" in line for line in lines)


def test_little_is_a_conclusion_only_if_the_error_is_little(advice: Advice) -> None:
    even = with_change(advice, -0.005, 0.0, 0.005)
    assert sentences.title(even).startswith("No conclusion")
    assert advice.calibration is not None
    met = replace(advice.calibration, wait_s=advice.calibration.real_wait_s)
    exact = replace(even, calibration=met, assumed=met)
    assert sentences.title(exact).startswith("Dally would have changed little")


def test_who_would_lose_is_named(advice: Advice) -> None:
    found = compared(advice)
    assert sentences.losers_line(found).startswith("Nobody would lose")
    loser = replace(found.effects.whole, name="user bob", change=0.2)
    told = replace(found, effects=replace(found.effects, losers=[loser]))
    assert sentences.losers_line(told) == "Who would lose: user bob (+20 %)."


def test_few_starts_are_told(advice: Advice) -> None:
    assert "That is of 3 starts only: take the error as a hint." in list(sentences.calibration_lines(advice))


def test_where_to_start_tells_what_the_setting_asks_for(advice: Advice) -> None:
    gains = with_change(advice, -0.5, -0.5, -0.5)
    found = compared(gains)
    assert next(sentences.settings_lines(gains, found)).startswith("Only srsf-delay was tried")
    lines = list(sentences.settings_lines(gains, replace(found, chosen=SETTINGS[1])))
    assert lines[0].startswith('Start with policy = "srsf-delay" in dally.toml; it asks for checkp')


@pytest.mark.parametrize(
    ("knowledge", "said"),
    [
        (Knowledge.EXACT, "know how long each job takes, as no site does"),
        (Knowledge.LIMITS, "the time limits, of which jobs ran for 1 % in the median."),
        (Knowledge.HISTORY, "what jobs took that have ended"),
        (Knowledge.AUTO, "whichever told truer"),
        (Knowledge.NONE, "only how long each job has run"),
    ],
)
def test_what_all_schedulers_know_is_told(advice: Advice, knowledge: Knowledge, said: str) -> None:
    knowing = replace(advice, site=replace(advice.site, knows=Known(knowledge)))
    assert said in sentences.knowledge_line(knowing)
    assert sentences.knowledge_line(knowing) in sentences.summary_lines(knowing)
    assert sentences.knowledge_line(knowing) in list(sentences.assumption_lines(knowing))
    assert f"running times known: {knowledge}" in sentences.setting_line(knowing)


def test_advice_that_rests_on_true_running_times_is_called_a_bound_in_its_title(advice: Advice) -> None:
    gains = with_change(advice, -0.5, -0.5, -0.5)
    assert sentences.title(gains).endswith("; a bound, as running times were known exactly")
    limits = replace(gains, site=replace(gains.site, knows=Known(Knowledge.LIMITS)))
    assert "bound" not in sentences.title(limits)


def asked(folder: Path, rows: Iterable[Row], case: ModelAssumption, profiles: str | None = None) -> Advice:
    """Advice on a history of the small cluster, under one case."""
    here = site(folder, rows, load_profiles(profiles) if profiles else None)
    with runner(here, 1, lambda task: None) as simulate:
        return advise(here, plan_simulations(here, None, "srsf-delay", [case]), simulate)


def test_waits_that_come_from_outside_end_in_no_conclusion(tmp_path: Path) -> None:
    advice = asked(tmp_path, held_back(), ModelAssumption("as told"))
    assert advice.comparison is None
    said = " ".join(sentences.summary_lines(advice))
    assert "No conclusion: the simulation of today's scheduler does not resemble" in said
    assert re.search(r"(9\d|100) % of the waiting is unexplained: so much", said)
    assert re.search(
        r"During (8|9)\d % of the real waiting, as many GPUs as the job asked for were idle", said
    )
    assert not re.search(r"sooner|Under Dally|Start with", said)


def test_a_history_of_more_gpus_than_the_cluster_has_is_told(tmp_path: Path) -> None:
    advice = asked(tmp_path, [Row(0, 500, 100, 8), Row(0, 520, 100, 8)], ModelAssumption("as told"))
    said = " ".join(sentences.summary_lines(advice))
    assert "Jobs of the history really held up to 16 GPUs at once, but this cluster has 8" in said
    advice = asked(tmp_path, [Row(0, 500, 100, 8), Row(0, 600, 100, 8)], ModelAssumption("as told"))
    assert "No conclusion" in " ".join(sentences.summary_lines(advice))
    assert "GPUs at once" not in " ".join(sentences.summary_lines(advice))


def test_jobs_that_ran_on_other_nodes_than_the_cluster_s_are_told(tmp_path: Path) -> None:
    rows = [Row(0, 0, 100, 2, nodes="r0m[0-1]"), Row(0, 100, 50, 2, nodes="r0m1,old7"), Row(0, 0, 9)]
    told = "1 job of 3 ran on nodes that --cluster does not have, such as old7"
    advice = asked(tmp_path, rows, ModelAssumption("as told"))
    for lines in (sentences.summary_lines(advice), list(sentences.limit_lines(advice))):
        assert sum(told in line for line in lines) == 1
    assert not list(sentences.elsewhere_lines(site(tmp_path, [rows[0], rows[2]])))


def test_models_that_the_real_waits_refute_end_in_no_conclusion(tmp_path: Path) -> None:
    rows = scheduled(Row(30 * n, 0, 100 + 50 * (n % 3), (2, 1, 3)[n % 3]) for n in range(90))
    advice = asked(tmp_path, rows, ModelAssumption("middle", "vgg11=1"), "dally")
    assert advice.calibration is not None
    assert advice.calibration.resembles
    assert advice.comparison is None
    first, second, *_ = sentences.finding_lines(advice)
    assert first.startswith(
        "With the models that are assumed (of 60 jobs with several GPUs, the models of 60"
    )
    assert "With the times that jobs really took, it is 0 %: these models" in second


@pytest.mark.parametrize(
    ("case", "profiles", "said"),
    [
        (ModelAssumption("as told"), None, "; no profiles were given, so distance costs nothing"),
        (
            ModelAssumption("as told"),
            "dally",
            "; of 8 jobs with several GPUs, the models of 7 are unknown, so distance",
        ),
        (
            ModelAssumption("middle", "resnet50=1"),
            "dally",
            "; of 8 jobs with several GPUs, the models of 7 are drawn",
        ),
    ],
)
def test_the_headline_says_what_is_known_of_the_models(
    tmp_path: Path, case: ModelAssumption, profiles: str | None, said: str
) -> None:
    here = site(
        tmp_path,
        [Row(0, 0, 9, 2, name="vgg11"), Row(0, 0, 9, 1), *(Row(n, n, 9, 2) for n in range(7))],
        load_profiles(profiles) if profiles else None,
    )
    assert f"; {sentences.models_told(Advice(here, [case], 'slurm', None))}".startswith(said)
