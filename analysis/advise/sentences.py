"""Advice in sentences, for the terminal and the page: how far it can be trusted comes first."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.advise.advice import Advice, PolicyComparison, RatioEffects
from analysis.advise.calibration import CHANCE, CLOSE, CLOSE_S, UNLIKE, Calibration
from analysis.advise.effects import EVEN, OTHER, Effect, changes_by_case
from analysis.advise.history import SiteHistory, idle_share, most_gpus_held
from analysis.advise.segments import SCHEDULERS, advised, concerned, jct_change, with_interval
from analysis.advise.site import ModelAssumption, Site
from dally.cluster.summary import left_out_line
from dally.jobs.knowledge import Knowledge
from dally.jobs.priority import DEFAULT_RATIO
from dally.jobs.segment_rule import NO_SEGMENTS, STATIC_SEGMENTS
from dally.traces import changes_text
from dally.words import duration, plural, share

_MOST_LOSERS = 5
MOVED = 0.005
"""Parts of a week's GPU time that move less than this are said not to move."""


def headline(found: PolicyComparison) -> str:
    """In a sentence, what would have changed."""
    whole = found.effects.whole
    if whole.verdict == "even":
        return "Dally would have changed little: jobs would have ended as soon as they do, within 1 %"
    if whole.verdict == "depends":
        return (
            "Whether Dally would have helped depends on what the jobs train: "
            f"completion times {percent(whole.least)} to {percent(whole.most)} on average"
        )
    how, spread = "sooner" if whole.verdict == "gain" else "later", ""
    if whole.most - whole.least >= EVEN:
        low, high = sorted((abs(whole.least), abs(whole.most)))
        spread = f" ({share(low)} to {share(high)}, by what they train)"
    return f"Under Dally, jobs would have ended {share(abs(whole.change))} {how} on average{spread}"


def models_told(advice: Advice) -> str:
    """What is known of the jobs' models, as part of the headline; empty if all is."""
    if advice.site.profiles is None:
        return "no profiles were given, so distance costs nothing"
    wide = sum(past.job.gpus > 1 for past in advice.site.history.jobs)
    of = f"of {plural(wide, 'job')} with several GPUs"
    if advice.cases[0].mix:
        drawn = advice.site.unknown(ModelAssumption("named"))
        return f"{of}, the models of {drawn:,} are drawn from a mix"
    unknown = advice.site.unknown(advice.cases[0])
    return f"{of}, the models of {unknown:,} are unknown, so distance costs them nothing" if unknown else ""


def effect_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """The means behind the title, how many jobs gain and lose, and what the network did."""
    whole = found.effects.whole
    yield (
        f"Mean completion time {duration(whole.dally_s)} instead of {duration(whole.today_s)}, of it waiting "
        f"{duration(whole.dally_wait_s)} instead of {duration(whole.today_wait_s)}, under "
        f"{found.chosen.policy} against {advice.today}."
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
    gain_s = abs(whole.today_s - whole.dally_s)
    if advice.calibration is not None and whole.verdict != "even" and gain_s > advice.bias_s:
        yield (
            f"It stands out from the error of the simulation: the difference is {duration(gain_s)} a job, "
            f"the error of the mean {duration(advice.bias_s)}; with that taken off, "
            f"{duration(gain_s - advice.bias_s)} are left."
        )


def losers_line(found: PolicyComparison) -> str:
    """The sentence about the sizes, groups and users whose jobs would end later."""
    sizes = [each for each in found.effects.sizes if each.change > EVEN]
    named = [f"jobs of {each.name} ({percent(each.change)})" for each in sizes]
    people = found.effects.losers
    named += [f"{each.name} ({percent(each.change)})" for each in people[:_MOST_LOSERS]]
    more = f" and {len(people) - _MOST_LOSERS} more" if len(people) > _MOST_LOSERS else ""
    if not named:
        return "Nobody would lose: of no size, group or user do jobs end later by more than 1 % on average."
    return f"Who would lose: {', '.join(named)}{more}."


def settings_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """With which settings to start."""
    if found.effects.whole.verdict == "even" and len(found.settings) > 1:
        yield f"No setting matters here; the one that asks least of a site is {found.chosen.policy}."
    elif not found.chosen.asks:
        yield f"Only {found.chosen.policy} was tried; without --policy, several settings are compared."
    else:
        yield f'Start with policy = "{found.chosen.policy}" in dally.toml; it asks for {found.chosen.asks}.'
    if found.ratios:
        strict, free = found.ratios[0], found.ratios[-1]
        yield (
            f"With priority_ratio = {strict.ratio:g} completion times change by "
            f"{percent(strict.effects.whole.change)}, and {_payers(strict)} would lose; with "
            f"{free.ratio:g} by {percent(free.effects.whole.change)}, and {_payers(free)}. The default is "
            f"{DEFAULT_RATIO:g}."
        )
        yield from _moved_share(found)
    yield "Let it run beside Slurm first: dally controller --shadow decides and orders nothing."


def segment_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """Which rule for segments to set, and what NVIDIA's would do; nothing if rules were not compared."""
    if not found.rules:
        return
    wide, priced = int(concerned(advice.site).sum()), advice.site.priced(advice.cases[0])
    for scheduler, name in zip(SCHEDULERS, (advice.today, found.chosen.policy), strict=True):
        yield _segments_advice(found, scheduler, name)
    told = (
        f"This is of {plural(wide, 'job')} with several machines; what distance costs is known of {priced:,}."
    )
    if priced < wide:
        told += " The others gain nothing from being close, as far as is known here."
    yield (
        f"{told} A job that needs all its machines in one block to run at all must say so itself: no history "
        "tells."
    )


def _segments_advice(found: PolicyComparison, scheduler: str, name: str) -> str:
    """The rule to set under a scheduler, and how NVIDIA's compares with no segments there."""
    rule, base = advised(found.rules, scheduler), found.rules[0].under(scheduler)
    by_rule = {each.rule: with_interval(jct_change(each.under(scheduler), base)) for each in found.rules}
    static = f"with {STATIC_SEGMENTS.text}, as NVIDIA has it, completion times change by"
    if rule == NO_SEGMENTS:
        return (
            f"Under {name}, set no segments: no rule surely has jobs end sooner by more than 1 %; {static} "
            f"{by_rule[STATIC_SEGMENTS]}."
        )
    also = "" if rule == STATIC_SEGMENTS else f"; {static} {by_rule[STATIC_SEGMENTS]}"
    return (
        f"Under {name}, set segments of {rule.text} ({rule}): completion times change by "
        f"{by_rule[rule]}{also}."
    )


def _payers(found: RatioEffects) -> str:
    """How many groups and users would lose."""
    return f"{len(found.effects.losers):,} of the groups and users" if found.effects.losers else "nobody"


def _moved_share(found: PolicyComparison) -> Iterator[str]:
    """How far the parts of a week's GPU time move with the default ratio."""
    moved = next(each.moved for each in found.ratios if each.ratio == DEFAULT_RATIO)
    if moved is None:
        return
    if moved.size < MOVED:
        yield (
            f"With the default nobody's part of a week's GPU time moves by {100 * MOVED:.1f} points or more."
        )
    else:
        yield (
            f"With the default {moved.name} has {share(moved.after)} of the GPU time of week "
            f"{moved.week + 1} instead of {share(moved.before)}; no other part of a week moves further."
        )


def case_lines(advice: Advice, found: PolicyComparison) -> Iterator[str]:
    """One line for each case of the jobs' models: the change of completion times."""
    if advice.site.profiles is None:
        return
    for name, changes in changes_by_case(found.pairs):
        case = next(each for each in advice.cases if each.name == name)
        low, high = percent(min(changes)), percent(max(changes))
        between = f"{low} to {high}, " if low != high else ""
        seeds = f" ({between}{len(changes)} seeds)" if len(changes) > 1 else ""
        mix = f", the others drawn from {_shares_of_mix(case.mix)}" if case.mix else ""
        yield f"{name.capitalize()}{mix}: completion times {percent(changes[0])}{seeds}."


def changes(compared: PolicyComparison) -> list[tuple[str, Effect]]:
    """The effects that a figure compares: of all jobs, sizes, groups and users, each with its name."""
    found = compared.effects
    return [
        ("all jobs", found.whole),
        *((f"jobs of {each.name}", each) for each in found.sizes),
        *(_named("group", each) for each in found.groups),
        *(_named("user", each) for each in found.users),
    ]


def _named(kind: str, effect: Effect) -> tuple[str, Effect]:
    return effect.name if effect.name.startswith(f"{OTHER} ") else f"{kind} {effect.name}", effect


def _shares_of_mix(text: str) -> str:
    parts = (part.partition("=") for part in text.split(","))
    weights = {name: float(weight) for name, _, weight in parts}
    total = sum(weights.values())
    return ", ".join(f"{name} {share(weight / total)}" for name, weight in weights.items())


def percent(part: float) -> str:
    """A change with its sign, in whole per cent."""
    return f"{100 * part:+.0f} %" if abs(part) >= 0.005 else "±0 %"


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
        f"mean, the mean completion time by {percent(found.mean_error)}; {share(found.close)} of the jobs "
        f"end within {share(CLOSE)} of their real completion time, or {duration(CLOSE_S)}; "
        f"{share(found.unexplained)} of the waiting is unexplained."
    )
    if len(found.wait_s) < found.jobs:
        yield f"Of {plural(found.jobs - len(found.wait_s), 'job')} the history tells no start."
    if len(found.wait_s) < _FEW:
        yield f"That is of {plural(len(found.wait_s), 'start')} only: take the error as a hint."


def simulated_line(history: SiteHistory) -> str:
    """Which part of the history is simulated; empty if all is."""
    if not (earlier := history.workload.earlier):
        return ""
    kept = len(history.jobs) + history.too_large
    return (
        f"Simulated: the last {kept:,} of {plural(kept + earlier, 'job')}, those from "
        f"{history.workload.origin} on; --most-jobs takes more."
    )


def title(advice: Advice) -> str:
    """The headline: what would have changed, or that nothing can be said, and what it rests on."""
    if advice.comparison is None:
        return "No conclusion: the simulation of today's scheduler does not resemble what really happened"
    if advice.concluded is None:
        return "No conclusion: Dally would change less than the simulation of today's scheduler is off"
    exact = advice.site.knows.knowledge is Knowledge.EXACT
    bound = "a bound, as running times were known exactly" if exact else ""
    return "; ".join(filter(None, (headline(advice.concluded), models_told(advice), bound)))


def finding_lines(advice: Advice) -> list[str]:
    """The sentences below the headline: means and losers, or why nothing is concluded."""
    if advice.concluded is not None:
        return [*effect_lines(advice, advice.concluded), losers_line(advice.concluded)]
    return [*_refusal_lines(advice)]


def _refusal_lines(advice: Advice) -> Iterator[str]:
    """Why nothing is concluded, and what an administrator can do."""
    found = advice.calibration
    assert found is not None, "what is not calibrated is not refused"
    if advice.comparison is not None:
        whole = advice.comparison.effects.whole
        gain_s = abs(whole.today_s - whole.dally_s)
        yield (
            f"The difference is {duration(gain_s)} a job, the error of the simulated mean "
            f"{duration(advice.bias_s)}: what today's scheduler does beyond {advice.today} matters more."
        )
    elif not found.resembles:
        yield _unlike(found, "")
    else:
        assert advice.assumed is not None, "it was found to be unlike"
        yield _unlike(advice.assumed, f"With the models that are assumed ({models_told(advice)}), ")
        yield (
            f"With the times that jobs really took, it is {share(found.unexplained)}: these models, or what "
            "distance is taken to cost them, are not this site's."
        )
    held, gpus = most_gpus_held(advice.site.history), advice.site.topology.gpus
    if held > gpus:
        yield (
            f"Jobs of the history really held up to {held:,} GPUs at once, but this cluster has {gpus:,}: "
            "--cluster is not all that they ran on."
        )
    idle = idle_share(advice.site.history, gpus)
    yield (
        f"During {share(idle)} of the real waiting, as many GPUs as the job asked for were idle: limits, "
        "reservations, partitions, other resources or nodes that were down held it back. During the other "
        f"{share(1 - idle)} GPUs were short, and priorities may have decided who got them."
    )
    yield (
        "So nothing is said of what Dally would have changed. What may help: only the nodes of one partition "
        "as --cluster and only its jobs in the history, a part of the time (--from-s, --to-s), what jobs "
        "train (--profiles, --models), or another --today."
    )


def _unlike(found: Calibration, under: str) -> str:
    """How much of the waiting is unexplained, how that is measured and what would pass."""
    return (
        f"{under}{share(found.unexplained)} of the waiting is unexplained: so much of it is either real or "
        f"simulated, but not both, job by job. Up to {share(UNLIKE)} would do; waits dealt out by chance "
        f"have some {share(CHANCE)}."
    )


def knowledge_line(advice: Advice) -> str:
    """What all schedulers know of running times."""
    history, all_know = advice.site.history, "All schedulers, today's too, know "
    match advice.site.knows.knowledge:
        case Knowledge.EXACT:
            return f"{all_know}how long each job takes, as no site does: what follows is a bound, not advice."
        case Knowledge.LIMITS:
            limited, used = history.limits_used
            drawn = len(history.jobs) - limited
            more = f"; {plural(drawn, 'job')} without one got one as users give them" if drawn else ""
            ran = f", of which jobs ran for {share(used)} in the median" if limited else ""
            return f"{all_know}of running times the time limits{ran}{more}."
        case Knowledge.HISTORY:
            return f"{all_know}of running times what jobs took that have ended, and how long each has run."
        case Knowledge.AUTO:
            return f"{all_know}of running times limits, or what jobs took, whichever told truer so far."
        case Knowledge.NONE:
            return f"{all_know}of running times only how long each job has run."


def assumption_lines(advice: Advice) -> Iterator[str]:
    """What was assumed of the jobs' models, and what each case came to."""
    yield knowledge_line(advice)
    site = advice.site
    if site.profiles is None:
        yield "No profiles were given: no job is taken as sensitive to the network."
    else:
        jobs = plural(len(site.history.jobs), "job")
        yield f"Of {jobs}, the models of {site.named():,} are told by their names or by the history."
    if advice.concluded is not None:
        yield from case_lines(advice, advice.concluded)


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
    yield from elsewhere_lines(site)
    known = "" if site.priorities else "priorities, fair share, "
    told = site.topology.partitions and any(past.job.partition for past in history.jobs)
    partitions = "limits of partitions" if told else "partitions"
    yield (
        f"Not simulated: {partitions}, {known}limits of users, reservations, nodes that were down, "
        "jobs without GPUs."
    )
    if part := simulated_line(history):
        yield part
    if left_out := changes_text(history.workload.dropped, history.workload.clamped):
        yield f"Of the history: {left_out}."
    if left_out := left_out_line(site.topology):
        yield f"Of the cluster: {left_out}."
    if history.too_large:
        yield f"Left out: {plural(history.too_large, 'job')} that the cluster cannot hold."


def elsewhere_lines(site: Site) -> Iterator[str]:
    """That jobs of the history ran on other nodes than the cluster's, if any did."""
    jobs, node = site.elsewhere()
    if jobs:
        yield (
            f"{plural(jobs, 'job')} of {len(site.history.jobs):,} ran on nodes that --cluster does not have, "
            f"such as {node}; they are simulated all the same."
        )


def tried_lines(found: Calibration) -> list[str]:
    """The policies that were tried as today's scheduler, the closest first."""
    return [
        f"{each.policy}: starts off by {duration(each.error_s)}, waits of {duration(each.wait_s)} on average"
        for each in found.tried
    ]


def setting_line(advice: Advice) -> str:
    """One line: the history, the cluster, the profiles and what schedulers know."""
    site = advice.site
    earlier = site.history.workload.earlier
    parts = [
        f"{'the last ' if earlier else ''}{plural(len(site.history.jobs), 'job')} of "
        f"{Path(site.history.workload.source).name}",
        f"{site.topology.name}: {plural(site.topology.gpus, 'GPU')} "
        f"in {plural(len(site.topology.machines), 'machine')}",
        f"profiles {Path(site.profiles.name).name}" if site.profiles else "no profiles: distance is free",
    ]
    parts.append(f"running times known: {site.knows}")
    if site.priorities is not None:
        parts.append("Slurm's priorities")
    if site.arrival_scale != 1:
        parts.append(f"submission times x {site.arrival_scale:g}")
    return " · ".join(parts)


def summary_lines(advice: Advice) -> Sequence[str]:
    """The few lines for a terminal."""
    lines = [next(calibration_lines(advice)), f"{title(advice)}.", *finding_lines(advice)]
    lines += elsewhere_lines(advice.site)
    if part := simulated_line(advice.site.history):
        lines.append(part)
    lines.append(knowledge_line(advice))
    if (found := advice.concluded) is None:
        return lines
    return [*lines, next(settings_lines(advice, found)), *segment_lines(advice, found)]
