"""Which run was better and by how much, in a sentence; and what a reader must know to believe it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

from analysis.report.runs import WholeRun
from dally.runs.records import JobRecord
from dally.runs.summary import Summary
from dally.words import change, duration, plural, share

EVEN = 0.01
"""Mean completion times, and those of one job, count as the same within this share."""
TELLING = 0.05
"""A figure that is worse under the best run by less than this share is not mentioned."""

_PRICES: Sequence[tuple[str, Callable[[Summary], float]]] = (
    ("the median completion time", lambda summary: summary.jct_s.median),
    ("the 99th percentile of completion times", lambda summary: summary.jct_s.p99),
    ("the mean wait", lambda summary: summary.queue_s.mean),
    ("the longest wait", lambda summary: summary.longest_wait_s),
    ("the makespan", lambda summary: summary.makespan_s),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the first screen says.

    Attributes:
        title: Which run was best and by how much.
        lines: What else there is to know of that, a sentence or two each.
        best: Place of the run with the shortest mean completion time; the first if nothing tells.
        rival: Place of the run that it is held against; itself if there is no other.
    """

    title: str
    lines: Sequence[str]
    best: int = 0
    rival: int = 0


def compare_runs(runs: Sequence[WholeRun]) -> Verdict:
    """Compare the mean completion time of the jobs that completed in all runs."""
    if len(runs) == 1:
        return _single(runs[0])
    done = [{record.job_id: record for record in run.records if record.status == "COMPLETED"} for run in runs]
    common = [job for job in done[0] if all(job in other for other in done)]
    if not common:
        return Verdict("No job completed in all runs", ["There is nothing to compare them by."], rival=1)
    means_s = [fsum(records[job].jct_s for job in common) / len(common) for records in done]
    order = sorted(range(len(runs)), key=lambda place: means_s[place])
    best = order[0]
    rival = 0 if best else order[1]
    pairs = [(done[best][job].jct_s, done[rival][job].jct_s) for job in common]
    lines = (
        _paired(pairs, runs[rival].name),
        *_variants(runs, means_s, best, rival),
        _price(runs, best),
        slower_sizes([(done[best][job], done[rival][job]) for job in common], runs[rival].name),
        _ranking(runs, order, means_s) if len(runs) > 2 else "",
        _missing(runs, done, len(common)),
    )
    told = [best, rival] if order[-1] in (0, rival) else [best, rival, order[-1]]
    alike = len({run.knew for run in runs}) == 1
    names = [run.name if alike else f"{run.name} (knew: {run.knew})" for run in runs]
    title = _title([(names[place], means_s[place]) for place in told])
    return Verdict(title, [line for line in lines if line], best, rival)


def _missing(runs: Sequence[WholeRun], done: Sequence[Mapping[str, JobRecord]], common: int) -> str:
    """Which runs lack how many of the jobs that completed in others; empty if none does."""
    ended = {job for own in done for job in own}
    lacks = [
        f"{run.name} lacks {plural(len(ended) - len(own), 'job')}"
        for run, own in zip(runs, done, strict=True)
        if len(own) < len(ended)
    ]
    if not lacks:
        return ""
    return (
        f"All this is of the {plural(common, 'job')} that completed in every run: {', '.join(lacks)}. The "
        "table's numbers are of each run's own jobs, so it tells differences only between runs with the same."
    )


def _single(run: WholeRun) -> Verdict:
    summary = run.summary
    if not summary.completed:
        return Verdict(f"Under {run.name} no job completed", [])
    took, waited = duration(summary.jct_s.mean), duration(summary.queue_s.mean)
    return Verdict(
        f"Under {run.name} a job took {took} on average, {waited} of it waiting",
        [
            f"Half of the {plural(summary.completed, 'completed job')} took {duration(summary.jct_s.median)} "
            f"or less, 99 % took {duration(summary.jct_s.p99)} or less. Jobs held "
            f"{share(summary.utilization)} of the GPU time over a makespan of {duration(summary.makespan_s)}."
        ],
    )


def _title(means_s: Sequence[tuple[str, float]]) -> str:
    """In a sentence, the best run and its mean completion time against one or two others."""
    (best, best_s), (rival, rival_s), *_ = means_s
    if rival_s - best_s <= EVEN * rival_s:
        return f"{best} and {rival} are even: jobs took {duration(best_s)} and {duration(rival_s)} on average"
    less = [f"{share(1 - best_s / other_s)} less than under {other}" for other, other_s in means_s[1:]]
    return f"{best} was best: jobs took {duration(best_s)} on average, {' and '.join(less)}"


def _paired(pairs: Sequence[tuple[float, float]], rival: str) -> str:
    """How many jobs took less time than under another run, and how many more."""
    less = sum(one < other * (1 - EVEN) for one, other in pairs) / len(pairs)
    more = sum(one * (1 - EVEN) > other for one, other in pairs) / len(pairs)
    return (
        f"Job by job against {rival}: of {plural(len(pairs), 'job')}, {share(less)} took less time, "
        f"{share(more)} took more, the others as long within 1 %."
    )


def _variants(runs: Sequence[WholeRun], means_s: Sequence[float], best: int, rival: int) -> Iterator[str]:
    """Sentences on the best policy with other knobs, and how much of its lead over the rival that costs."""
    for run, mean_s in zip(runs, means_s, strict=True):
        name, spec = run.facts["policy"]["name"], run.facts["policy"]["spec"]
        if run is runs[best] or run is runs[rival] or name != runs[best].facts["policy"]["name"]:
            continue
        lost = (mean_s - means_s[best]) / (means_s[rival] - means_s[best] or 1.0)
        told = f", {share(lost)} of the difference to {runs[rival].name}" if lost <= 1 else ""
        with_ = spec.partition(":")[2] or "its defaults"
        yield f"With {with_}, {name} took {duration(mean_s)} ({change(mean_s, means_s[best])}){told}."


def _price(runs: Sequence[WholeRun], best: int) -> str:
    """The sentence about figures in which another run is better than the best one."""
    worse = []
    for name, value in _PRICES:
        least = min(runs, key=lambda run: value(run.summary))
        one, other = value(runs[best].summary), value(least.summary)
        if one > other * (1 + TELLING):
            worse.append(
                f"{name} is {duration(one)}, {duration(other)} under {least.name} ({change(one, other)})"
            )
    return f"But {'; '.join(worse)}." if worse else ""


def slower_sizes(pairs: Sequence[tuple[JobRecord, JobRecord]], rival: str) -> str:
    """The sizes of jobs that take longer under the best run on average."""
    sizes: dict[int, list[tuple[float, float]]] = {}
    for one, other in pairs:
        sizes.setdefault(one.gpus, []).append((one.jct_s, other.jct_s))
    worse = []
    for gpus, each in sorted(sizes.items()):
        ours_s, theirs_s = (fsum(times_s) / len(each) for times_s in zip(*each, strict=True))
        if ours_s > theirs_s * (1 + TELLING):
            took = f"{duration(ours_s)}, not {duration(theirs_s)} ({change(ours_s, theirs_s)})"
            worse.append(f"the {plural(len(each), 'job')} of {plural(gpus, 'GPU')} {took}")
    return f"On average it took longer than {rival} for some: {'; '.join(worse)}." if worse else ""


def _ranking(runs: Sequence[WholeRun], order: Sequence[int], means_s: Sequence[float]) -> str:
    """All runs by their mean completion times."""
    least_s = means_s[order[0]]
    others = [f"{runs[n].name} {duration(means_s[n])} ({change(means_s[n], least_s)})" for n in order[1:]]
    best = f"{runs[order[0]].name} {duration(least_s)}"
    return f"Mean completion times, best first: {', '.join([best, *others])}."


def setting(runs: Sequence[WholeRun]) -> str:
    """What was run, in a line."""
    run = runs[0]
    cluster, trace, profiles = run.cluster, run.facts.get("trace", {}), run.facts.get("profiles")
    machines = f" in {plural(cluster['machines'], 'machine')}" if "machines" in cluster else ""
    real = run.facts.get("kind") == "testbed"
    source = str(trace.get("source", "a trace"))
    name = source.partition(":")[0] if trace.get("format") == "generated" else Path(source).name
    parts = [
        f"{plural(len(run.records), 'job')} of {name}",
        f"{cluster.get('name', 'a cluster')}: {plural(cluster['gpus'], 'GPU')}{machines}",
        f"profiles {Path(str(profiles)).name}" if profiles else "no profiles: distance costs nothing",
        "real jobs on Slurm" if real else f"simulated, seed {run.facts.get('seed')}",
    ]
    if len({each.knew for each in runs}) == 1:
        parts.append(f"running times known: {run.knew}")
    return " · ".join(parts)


def origin(runs: Sequence[WholeRun]) -> str:
    """Where the jobs came from, to the last knob."""
    trace = runs[0].facts.get("trace", {})
    return f"{trace.get('source', 'unknown')} (SHA-256 {str(trace.get('sha256', 'unknown'))[:12]})"


def warnings(runs: Sequence[WholeRun]) -> Iterator[str]:
    """What a reader must know before believing the comparison."""
    for run in runs:
        if not run.facts["complete"]:
            note = run.facts.get("note") or "it was cut off"
            yield f"{run.name} is incomplete: {note}. Its numbers are of the jobs that ended."
    differences = []
    for name, value in _INPUTS:
        values = [value(run.facts) for run in runs]
        if any(each != values[0] for each in values):
            told = ", ".join(f"{run.name}: {each}" for run, each in zip(runs, values, strict=True))
            differences.append(f"{name} ({told})")
    if differences:
        yield f"Not only the policy differs, but also {'; '.join(differences)}."
    if nowhere := [run.name for run in runs if run.topology is None]:
        yield f"No racks in the map of {', '.join(nowhere)}: the cluster file is gone or has changed."
    predictions = [run.facts.get("predictions", {}) for run in runs]
    if unknown := sorted({name for each in predictions for name in each.get("models_without_profile", ())}):
        yield f"No profile, taken as insensitive to the network: {', '.join(unknown)}."


def _failures(facts: Mapping[str, Any]) -> str:
    told = [f"{key} {value}" for key, value in (facts.get("failures") or {}).items() if value is not None]
    return ", ".join(told) or "none"


_INPUTS: Sequence[tuple[str, Callable[[Mapping[str, Any]], object]]] = (
    ("kind", lambda facts: facts.get("kind")),
    ("cluster", lambda facts: f"{facts['cluster'].get('name')} of {plural(facts['cluster']['gpus'], 'GPU')}"),
    ("profiles", lambda facts: facts.get("profiles")),
    ("congestion", lambda facts: facts.get("congestion", 1.0)),
    ("contention", lambda facts: "on" if facts.get("contention") else "off"),
    ("batch split", lambda facts: facts.get("batch_split", "even")),
    ("seed", lambda facts: facts.get("seed")),
    ("knowledge of running times", lambda facts: facts.get("knowledge", "exact")),
    ("error of running times", lambda facts: facts.get("estimate_error", 0)),
    ("error of the profiles that policies saw", lambda facts: facts.get("profile_error", 0)),
    ("failures", _failures),
    ("version", lambda facts: facts.get("version")),
)
