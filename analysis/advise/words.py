"""Advice in sentences, for the terminal and the page: how far it can be trusted, first."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.advise.advice import Advice
from analysis.advise.calibration import CLOSE, CLOSE_S, Calibration
from analysis.advise.effects import EVEN, OTHER, Effect, changes_by_case
from analysis.advise.settings import limits_used
from dally.traces import told_changes
from dally.words import duration, plural, share

_MOST_LOSERS = 5
_FEW = 50


def calibration_lines(advice: Advice) -> Iterator[str]:
    """How far the simulation of today's scheduler is from what really happened, or why nobody knows."""
    found = advice.calibration
    if found is None:
        yield (
            "Not calibrated: the history tells no starts, so nothing says how far the simulation of today's "
            f"scheduler ({advice.today}) is from what really happened."
        )
        yield (
            "What cannot be checked: how long jobs really waited, in which order they started, and where "
            "they ran. What the history does fix: when jobs came, how many GPUs they held and for how long."
        )
        return
    yield (
        f"Calibration: {advice.today} simulated has {plural(len(found.wait_s), 'job')} wait "
        f"{duration(float(found.wait_s.mean()))} on average; really they waited "
        f"{duration(float(found.real_wait_s.mean()))}. A start is off by {duration(found.error_s)} in the "
        f"mean, the mean completion time by {_percent(found.mean_error)}; {share(found.close)} of the jobs "
        f"end within {share(CLOSE)} of their real completion time, or {duration(CLOSE_S)}."
    )
    if len(found.wait_s) < found.jobs:
        yield f"Of {plural(found.jobs - len(found.wait_s), 'job')} the history tells no start."
    if len(found.wait_s) < _FEW:
        yield f"{plural(len(found.wait_s), 'start')} are few: take the error as a hint."


def trust(advice: Advice) -> str:
    """The difference that Dally makes against the error of the simulation; empty if that is not known."""
    found, whole = advice.calibration, advice.effects.whole
    if found is None or whole.verdict == "even":
        return ""
    gain_s, bias_s = abs(whole.today_s - whole.dally_s), abs(found.bias_s)
    sizes = f"the difference is {duration(gain_s)} a job, the error of the mean {duration(bias_s)}"
    if gain_s < bias_s:
        return f"Do not rely on it: {sizes}. What today's scheduler does beyond {advice.today} matters more."
    left = f"with that taken off, {duration(gain_s - bias_s)} are left"
    return f"It stands out from the error of the simulation: {sizes}; {left}."


def title(advice: Advice) -> str:
    """In a sentence, what would have changed."""
    whole = advice.effects.whole
    if whole.verdict == "even":
        return "Dally would have changed little: jobs would have ended as soon as they do, within 1 %"
    if whole.verdict == "depends":
        return (
            "Whether Dally would have helped depends on what the jobs train: "
            f"completion times {_range(whole)} on average"
        )
    how = "sooner" if whole.verdict == "gain" else "later"
    return f"Under Dally, jobs would have ended {share(abs(whole.change))} {how} on average{_spread(whole)}"


def verdict_lines(advice: Advice) -> Iterator[str]:
    """The means behind the title, how many jobs gain and lose, and what the network did."""
    whole = advice.effects.whole
    yield (
        f"Mean completion time {duration(whole.dally_s)} instead of {duration(whole.today_s)}, of it waiting "
        f"{duration(whole.dally_wait_s)} instead of {duration(whole.today_wait_s)}, under "
        f"{advice.chosen.policy} against {advice.today}."
    )
    if whole.today_wait_s < EVEN * whole.today_s:
        yield (
            "Jobs hardly wait on this cluster, so no scheduler can gain much: a higher load "
            f"(--arrival-scale {0.7 * advice.site.arrival_scale:.2g}) shows what more jobs would mean."
        )
    yield (
        f"Of {plural(whole.jobs, 'job')}, {share(whole.sooner)} end sooner, {share(whole.later)} later, the "
        "others as soon within 1 %."
    )
    if line := trust(advice):
        yield line


def losers_line(advice: Advice) -> str:
    """Who would lose."""
    sizes = [each for each in advice.effects.sizes if each.change > EVEN]
    named = [f"jobs of {each.name} ({_percent(each.change)})" for each in sizes]
    people = advice.effects.losers
    named += [f"{each.name} ({_percent(each.change)})" for each in people[:_MOST_LOSERS]]
    more = f" and {len(people) - _MOST_LOSERS} more" if len(people) > _MOST_LOSERS else ""
    if not named:
        return "Nobody would lose: of no size, group or user do jobs end later by more than 1 % on average."
    return f"Who would lose: {', '.join(named)}{more}."


def settings_lines(advice: Advice) -> Iterator[str]:
    """With which settings to start."""
    if advice.effects.whole.verdict == "even" and len(advice.settings) > 1:
        yield f"No setting matters here; the one that asks least of a site is {advice.chosen.policy}."
    elif not advice.chosen.asks:
        yield f"Only {advice.chosen.policy} was tried; without --policy, several settings are compared."
    else:
        yield f'Start with policy = "{advice.chosen.policy}" in dally.toml; it asks for {advice.chosen.asks}.'
    yield "Let it run beside Slurm first: dally controller --shadow decides and orders nothing."
    if all("estimates=attained" in setting.policy for setting, _ in advice.settings):
        return
    limited, used = limits_used(advice.site.history)
    if limited:
        yield (
            f"{share(limited / len(advice.site.history.jobs))} of the jobs had a time limit and ran for "
            f"{share(used)} of it in the median; the closer limits are, the nearer is the bound of dally."
        )
    else:
        yield "The history tells no time limits, so nothing says how near one can come to the bound of dally."


def assumption_lines(advice: Advice) -> Iterator[str]:
    """What was assumed of the jobs' models, and what each case came to."""
    site, jobs = advice.site, advice.site.history.jobs
    if site.profiles is None:
        yield "No profiles were given: no job is taken as sensitive to the network."
        return
    named = site.named()
    yield f"Of {plural(len(jobs), 'job')}, the models of {named:,} are told by their names or by the history."
    for name, changes in changes_by_case(advice.pairs):
        case = next(each for each in advice.cases if each.name == name)
        low, high = _percent(min(changes)), _percent(max(changes))
        between = f"{low} to {high}, " if low != high else ""
        seeds = f" ({between}{len(changes)} seeds)" if len(changes) > 1 else ""
        mix = f", the others drawn from {_mix(case.mix)}" if case.mix else ""
        yield f"{name.capitalize()}{mix}: completion times {_percent(changes[0])}{seeds}."


def limit_lines(advice: Advice) -> Iterator[str]:
    """What the simulation leaves out."""
    site, history = advice.site, advice.site.history
    wide = sum(past.job.gpus > 1 for past in history.jobs)
    located = site.located()
    yield (
        f"Of {plural(wide, 'job')} with several GPUs, the nodes of {located:,} are known: from their times, "
        "what the network cost them there was taken out. The times of the others count as those of their "
        "best placement, which makes them too long where they were placed badly."
    )
    yield (
        "Not simulated: partitions, priorities, fair share, limits of users, reservations, nodes that were "
        "down, jobs without GPUs. Backfill knows run times exactly, where Slurm has time limits."
    )
    if left_out := told_changes(history.workload.dropped, history.workload.clamped):
        yield f"Of the history: {left_out}."
    if history.too_large:
        yield f"{plural(history.too_large, 'job')} larger than the cluster were left out."


def tried_lines(found: Calibration) -> list[str]:
    """What was tried as today's scheduler, the closest first."""
    return [
        f"{each.policy}: starts off by {duration(each.error_s)}, waits of {duration(each.wait_s)} on average"
        for each in found.tried
    ]


def setting_line(advice: Advice) -> str:
    """Whose history on which cluster."""
    site = advice.site
    parts = [
        f"{plural(len(site.history.jobs), 'job')} of {Path(site.history.workload.source).name}",
        f"{site.topology.name}: {plural(site.topology.gpus, 'GPU')} "
        f"in {plural(len(site.topology.machines), 'machine')}",
        f"profiles {Path(site.profiles.name).name}" if site.profiles else "no profiles: distance is free",
    ]
    if site.arrival_scale != 1:
        parts.append(f"submission times x {site.arrival_scale:g}")
    return " · ".join(parts)


def changes(advice: Advice) -> list[tuple[str, Effect]]:
    """Whose completion times a figure compares: all jobs, sizes, groups and users, each with its name."""
    found = advice.effects
    return [
        ("all jobs", found.whole),
        *((f"jobs of {each.name}", each) for each in found.sizes),
        *(_named("group", each) for each in found.groups),
        *(_named("user", each) for each in found.users),
    ]


def _named(kind: str, effect: Effect) -> tuple[str, Effect]:
    return effect.name if effect.name.startswith(f"{OTHER} ") else f"{kind} {effect.name}", effect


def _mix(text: str) -> str:
    parts = (part.partition("=") for part in text.split(","))
    weights = {name: float(weight) for name, _, weight in parts}
    total = sum(weights.values())
    return ", ".join(f"{name} {share(weight / total)}" for name, weight in weights.items())


def _percent(part: float) -> str:
    return f"{100 * part:+.0f} %" if abs(part) >= 0.005 else "±0 %"


def _range(effect: Effect) -> str:
    return f"{_percent(effect.least)} to {_percent(effect.most)}"


def _spread(effect: Effect) -> str:
    if effect.most - effect.least < EVEN:
        return ""
    low, high = sorted((abs(effect.least), abs(effect.most)))
    return f" ({share(low)} to {share(high)}, by what they train)"


def summary_lines(advice: Advice) -> Sequence[str]:
    """The few lines for a terminal."""
    return [
        next(calibration_lines(advice)),
        f"{title(advice)}.",
        *verdict_lines(advice),
        losers_line(advice),
        next(settings_lines(advice)),
    ]
