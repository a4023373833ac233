"""What a guard against starvation costs and gives: `python -m simulator.guard_study`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import click

from dally.clusters import load_cluster, scaled_links
from dally.costs import CostModel
from dally.cycle import Scheduler
from dally.errors import DallyError
from dally.markdown import replace_section, table
from dally.policies.registry import parse_policy
from dally.profiles.files import load_profiles
from dally.records import JobRecord, NoEvents
from dally.state import ClusterState
from dally.summary import quantile
from dally.topology import Link, Machine, Topology
from dally.topology_build import Attached, Switch, build_topology
from dally.traces import assign_models, load_trace
from simulator.bench import MIX
from simulator.engine import Engine

SMALL = "1:50/2:10/4:15/8:15/16:8/32:2"
STARVED = 10.0
"""A job is starved that waits so many times as long as it runs."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated.

    Attributes:
        trace: A generated workload.
        cluster: A shipped cluster, or a number of GPUs: machines of 8, two to a rack.
        restart_s: What every restart costs, seconds; None: what the profiles say.
        congestion: Factor on the bandwidth of all links between machines.
    """

    trace: str
    cluster: str
    restart_s: float | None = None
    congestion: float = 1.0


def _small(gpus: int, load: float, sizes: str = SMALL, more: str = "", kind: str = "philly-like") -> Setting:
    """Generated arrivals on a small cluster."""
    return Setting(f"{kind}:jobs=1500,gpus={sizes},load={load},cluster_gpus={gpus}{more}", str(gpus))


WHOLE_64 = "1:60/2:12/4:14/8:13/64:1"
"""One job in a hundred takes all of 64 GPUs."""

TUNING: Mapping[str, Setting] = {
    "dally-batch, 128": Setting("dally-batch", "dally-128"),
    "dally-poisson, 128": Setting("dally-poisson", "dally-128"),
    "64 GPUs, load 0.7": _small(64, 0.7),
    "64 GPUs, load 0.9": _small(64, 0.9),
    "64 GPUs, load 1.1": _small(64, 1.1),
    "whole cluster, load 0.9": _small(64, 0.9, WHOLE_64, more=",max_s=100000"),
    "whole cluster, up to 2 h": _small(64, 0.9, WHOLE_64, more=",max_s=7200"),
    "burst, load 0.9": _small(64, 0.9, more=",cv=12"),
}
WHOLE_128 = "1:55/4:24/8:15/32:5/128:1"
MINUTES = ",mu=5,sigma=1.5,max_s=3600"
REPORT: Mapping[str, Setting] = {
    "venus-like, 128, load 0.7": _small(128, 0.7, kind="venus-like"),
    "venus-like, 128, load 0.9": _small(128, 0.9, kind="venus-like"),
    "venus-like, 192, load 1.1": _small(192, 1.1, kind="venus-like"),
    "whole of 128, load 0.7": _small(128, 0.7, WHOLE_128, ",max_s=20000", "venus-like"),
    "whole of 128, load 0.9": _small(128, 0.9, WHOLE_128, ",max_s=20000", "venus-like"),
    "whole of 128, load 1.1": _small(128, 1.1, WHOLE_128, ",max_s=20000", "venus-like"),
    "whole of 64, minutes, load 0.9": _small(64, 0.9, WHOLE_64, MINUTES, "poisson"),
    "burst of minutes, load 1.1": _small(64, 1.1, SMALL, MINUTES + ",cv=12", "bursty"),
    "burst of hours, load 0.9": _small(128, 0.9, SMALL, ",mu=8,sigma=1.5,max_s=90000,cv=12", "bursty"),
    "restarts of 600 s, load 0.9": replace(
        _small(128, 0.9, WHOLE_128, ",max_s=20000", "venus-like"), restart_s=600.0
    ),
    "links at a hundredth, load 0.9": replace(_small(128, 0.9, kind="venus-like"), congestion=0.01),
}
"""Written down before anything of it was run."""

SETS = {"tuning": TUNING, "report": REPORT}


def cluster(name: str) -> Topology:
    """A shipped cluster, or so many GPUs in machines of 8, two to a rack."""
    if not name.isdigit():
        return load_cluster(name)
    nic = Link(200e9, 1e-6)
    machines = [
        Attached(Machine(f"m{at}", 8, "a100", Link(2.4e12, 1e-6)), f"r{at // 2}", nic)
        for at in range(int(name) // 8)
    ]
    racks = dict.fromkeys(each.switch for each in machines)
    return build_topology(
        name, machines, [Switch("core", None), *(Switch(rack, "core", nic) for rack in racks)]
    )


def run(policy: str, setting: Setting, seed: int) -> list[JobRecord]:
    """Simulate one policy in memory.

    Raises:
        DallyError: The policy is wrong, or leaves jobs waiting for ever.
    """
    spec, topology = parse_policy(policy), cluster(setting.cluster)
    if setting.congestion != 1:
        topology = scaled_links(topology, setting.congestion)
    author = setting.trace.startswith("dally")
    costs = CostModel(
        topology, load_profiles("dally" if author else "realistic"), restart_s=setting.restart_s
    )
    state = ClusterState(topology, costs)
    jobs = load_trace(setting.trace, seed=seed).jobs
    if not author:
        jobs = assign_models(jobs, MIX, seed)
    return Engine(Scheduler(state, spec.build(state)), jobs, NoEvents()).run().records


def figures(records: Iterable[JobRecord]) -> list[float]:
    """Mean JCT; mean, p50, p90, p95, p99 and longest wait; share starved; makespan; stops. In seconds."""
    ended = [each for each in records if each.status == "COMPLETED"]
    waits = sorted(each.queue_s for each in ended)
    return [
        fmean(each.jct_s for each in ended),
        fmean(waits),
        *(quantile(waits, share) for share in (0.5, 0.9, 0.95, 0.99, 1.0)),
        fmean(each.queue_s > STARVED * each.ideal_s for each in ended),
        max(each.submit_s + each.jct_s for each in ended) - min(each.submit_s for each in ended),
        sum(each.preemptions for each in ended),
    ]


_HEADER = (
    "setting", "policy", "mean JCT", "mean wait", "p50", "p90", "p95", "p99", "longest",
    "over ten times its length", "makespan", "stops",
)  # fmt: skip


def rows(name: str, policies: Sequence[str], seeds: Sequence[int]) -> list[list[str]]:
    """A row for each policy, means over the seeds, in ks; after the first, JCT and waits relative to it."""
    found: list[list[float]] = []
    told = []
    for policy in policies:
        each = [figures(run(policy, SETTINGS[name], seed)) for seed in seeds]
        found.append([fmean(values) for values in zip(*each, strict=True)])
        told.append([name, f"`{policy}`", *_told(found[-1], found[0])])
    return told


SETTINGS = {name: setting for settings in SETS.values() for name, setting in settings.items()}


def _told(values: Sequence[float], first: Sequence[float]) -> list[str]:
    *times_s, starved, makespan_s, stops = values
    told = []
    for value_s, first_s in zip(times_s, first, strict=False):
        against = "" if values is first or not first_s else f" ({value_s / first_s - 1:+.1%})"
        told.append(f"{value_s / 1000:.3g}{against}")
    return [*told, f"{starved:.1%}", f"{makespan_s / 1000:.4g}", f"{stops:.0f}"]


@click.command()
@click.argument("settings", type=click.Choice([*SETS]))
@click.option("--policy", "policies", multiple=True, default=("srsf-delay:guard_share=0", "srsf-delay"))
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True)
@click.option("--only", multiple=True, type=click.Choice([*SETTINGS]), help="Of them.")
@click.option("--section", help="Of the document; by default guard-SETTINGS.")
@click.option("--write", type=click.Path(path_type=Path), help="Put the table into this document.")
def main(
    settings: str,
    policies: Sequence[str],
    seeds: Sequence[int],
    only: Sequence[str],
    section: str | None,
    write: Path | None,
) -> None:
    """Policies beside the first one on a set of settings; times in ks, means over seeds."""
    try:
        told = []
        for name in SETS[settings]:
            if not only or name in only:
                told += rows(name, policies, seeds)
                if write is None:
                    for row in told[-len(policies) :]:
                        click.echo(" | ".join(row))
        if write is not None:
            text, body = write.read_text(encoding="utf-8"), table(_HEADER, told)
            write.write_text(replace_section(text, section or f"guard-{settings}", body), encoding="utf-8")
    except (DallyError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
