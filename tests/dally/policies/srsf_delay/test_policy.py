"""The default policy on cases small enough to compute by hand; a restart of a job of n GPUs costs 6 + n s."""

from math import inf
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.cluster import load_cluster
from dally.errors import InputError
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.plan import Plan, Start, Wait
from dally.policies.registry import parse_policy
from dally.policies.srsf_delay.policy import SrsfDelay
from dally.policies.srsf_delay.running import LEAST_S
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.scheduling.beliefs import AGES_S
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import Result, World, racks, simulate, worlds
from simulator.failures import Outage
from tests.dally.policies.events import job, levels, times, waits

AUTHORS = load_profiles("dally")
MODEL = "mobilenetv3"
TWO_MACHINES = racks([[2, 2]])
ONE_FREE_ON_EACH = racks([[3, 3]])
"""With two jobs of 2 GPUs."""


def of(user: str, name: str, duration_s: float, submit_s: float) -> Job:
    return Job(name, submit_s, 1, duration_s, user=user)


def fixed(name: str, gpus: int, duration_s: float) -> Job:
    """A job that must not be preempted."""
    return Job(name, 0.0, gpus, duration_s, preemptible=False)


def apart() -> float:
    """The slowdown of a pair on two machines."""
    return CostModel(TWO_MACHINES, AUTHORS).cost(job("a", 2, 1.0, model=MODEL), ((0, 1), (1, 1))).slowdown


def reason(result: Result, name: str, event: str) -> str:
    found = (each for each in result.events if each["event"] == event and each["job"] == name)
    return str(next(found)["reason"])


def test_fewest_gpu_seconds_go_first() -> None:
    """200 GPU-seconds on two GPUs go before 300 on one, though they take fewer GPUs to start."""
    jobs = [job("runs", 2, 100), job("long", 1, 300, 1), job("wide", 2, 100, 2)]
    result = simulate("srsf-delay", racks([[2]]), jobs)
    assert (times(result, "wide"), times(result, "long")) == ([100.0], [200.0])


def test_by_time_alone_the_shortest_goes_first() -> None:
    jobs = [job("runs", 2, 100), job("wide", 2, 150, 1), job("short", 1, 149, 2)]
    result = simulate("srsf-delay:order=time", racks([[2]]), jobs)
    assert (times(result, "short"), times(result, "wide")) == ([100.0], [249.0])


def test_a_small_claim_behind_one_that_does_not_fit_starts() -> None:
    jobs = [fixed("runs", 1, 1000), job("pair", 2, 10, 1), job("single", 1, 900, 2)]
    assert times(simulate("srsf-delay", racks([[2]]), jobs), "single") == [2.0]


def test_a_job_keeps_its_gpus_for_a_lease_then_gives_way_to_a_lesser_claim() -> None:
    jobs = [job("long", 1, 10_000), job("short", 1, 100, 10)]
    result = simulate("srsf-delay", racks([[1]]), jobs)
    assert times(result, "short") == [600.0]
    assert times(result, "long", "end") == [700.0 + 7.0 + 9400.0]
    assert reason(result, "long", "preempt") == (
        "would hold 2.61 GPU-hours more; job short needs only 0.0278 GPU-hours"
    )


@pytest.mark.parametrize(("left_s", "start_s"), [(156.0, 856.0), (157.0, 700.0)])
def test_it_must_hold_half_as_much_again_and_its_restart(left_s: float, start_s: float) -> None:
    jobs = [job("long", 1, 700 + left_s), job("short", 1, 100, 700)]
    assert times(simulate("srsf-delay", racks([[1]]), jobs), "short") == [start_s]


def test_without_preemption_nobody_is_stopped() -> None:
    jobs = [job("long", 1, 10_000), job("short", 1, 100, 10)]
    assert times(simulate("srsf-delay:preempt=no", racks([[1]]), jobs), "short") == [10_000.0]


def test_who_would_hold_most_is_stopped() -> None:
    jobs = [job("a", 1, 5000), job("b", 1, 9000), job("short", 1, 100, 700)]
    result = simulate("srsf-delay", racks([[2]]), jobs)
    assert (times(result, "a", "preempt"), times(result, "b", "preempt")) == ([], [700.0])


def test_a_pair_takes_a_machine_from_others_rather_than_be_apart() -> None:
    jobs = [job("a", 2, 50_000), job("b", 2, 60_000), job("pair", 2, 100, 700, model=MODEL)]
    result = simulate("srsf-delay", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
    assert (times(result, "pair"), levels(result, "pair")) == ([700.0], ["machine"])
    assert times(result, "b", "migrate") == [700.0]


def test_it_declines_to_be_apart_as_long_as_sixteen_leases_apart_and_moving_then_would_cost() -> None:
    """It trains 160 s in vain but for one part in its slowdown; a restart takes 8 s."""
    jobs = [fixed("a", 2, 5000), fixed("b", 2, 6000), job("pair", 2, 1000, 1, model=MODEL)]
    for patience in (1, 4):
        policy = f"srsf-delay:lease_s=10,lease_restarts=0,patience={patience}"
        result = simulate(policy, ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
        until_s = round(1 + patience * (160 * (1 - 1 / apart()) + 8), 3)
        assert waits(result, "pair")[0] == (1.0, until_s)
        assert (times(result, "pair"), levels(result, "pair")) == ([until_s], ["rack"])


def test_it_declines_no_longer_than_being_apart_to_its_end_would_cost() -> None:
    cost_s = (apart() - 1) * 5
    jobs = [fixed("a", 2, 5000), fixed("b", 2, 6000), job("pair", 2, 5, 1, model=MODEL)]
    result = simulate("srsf-delay:patience=1", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
    assert waits(result, "pair")[0] == (1.0, round(1 + cost_s, 3))
    assert times(simulate("srsf-delay:patience=0", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS), "pair") == [1.0]


def test_who_cannot_move_later_declines_as_long_as_being_apart_would_cost() -> None:
    """A machine comes free when waiting has cost nearly as much, and just after."""
    cost_s = (apart() - 1) * 100
    pair = Job("pair", 1.0, 2, 100.0, model=MODEL, preemptible=False)
    for ends_s, level in ((cost_s, "machine"), (cost_s + 2, "rack")):
        jobs = [fixed("a", 2, ends_s), fixed("b", 2, 10 * cost_s), pair]
        result = simulate("srsf-delay:patience=1", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
        assert levels(result, "pair") == [level]
        assert waits(result, "pair")[0] == (1.0, round(1 + cost_s, 3))


def test_it_does_not_wait_for_machines_that_are_down() -> None:
    pair = job("pair", 4, 50_000, 1, model=MODEL)
    broken = [Outage(0.5, machine, inf) for machine in (0, 2)]
    result = simulate("srsf-delay", racks([[2, 2], [2, 2]]), [pair], profiles=AUTHORS, outages=broken)
    assert (times(result, "pair"), levels(result, "pair")) == ([1.0], ["network"])


def test_a_scattered_job_moves_closer_when_that_saves_more_than_it_costs() -> None:
    jobs = [fixed("a", 2, 5000), fixed("b", 2, 900_000), job("pair", 2, 10_000, 1, model=MODEL)]
    result = simulate("srsf-delay:patience=0", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
    assert times(result, "pair", "migrate") == [5000.0]
    assert "moving saves" in reason(result, "pair", "migrate")
    stays = simulate("srsf-delay:moves=0,patience=0", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
    assert (times(stays, "pair"), times(stays, "pair", "migrate")) == ([1.0], [])


def test_a_scattered_job_moves_closer_before_who_waits_takes_what_it_leaves() -> None:
    late = Job("late", 4000.0, 2, 200.0)
    jobs = [fixed("a", 2, 5000), fixed("b", 2, 900_000), job("pair", 2, 100_000, 1, model=MODEL), late]
    result = simulate("srsf-delay:patience=0,preempt=no", ONE_FREE_ON_EACH, jobs, profiles=AUTHORS)
    assert times(result, "pair", "migrate") == times(result, "late") == [5000.0]


def test_who_gains_nothing_by_moving_does_not_keep_others_from_it() -> None:
    """The first pair loses more by being apart, but is nearly done when a machine comes free."""
    freed_s = round(6000 * apart()) - 10
    stay = [fixed(name, 2, 900_000) for name in "bcd"]
    pairs = [job("first", 2, 6000, 1, model=MODEL), job("second", 2, 5500, 20_000, model=MODEL)]
    one_free_on_each = racks([[3, 3, 3, 3]])
    jobs = [fixed("a", 2, freed_s), *stay, *pairs]
    result = simulate("srsf-delay:patience=0,moves=1", one_free_on_each, jobs, profiles=AUTHORS)
    assert times(result, "second", "migrate") == [freed_s]
    assert times(result, "first", "migrate") == []


def test_what_a_stopped_job_leaves_over_goes_to_who_waits_by_claim() -> None:
    """The pair claims more than who runs, so it could not stop it; it starts when another stops it."""
    pair = Job("pair", 1.0, 2, 30_000.0, preemptible=False)
    jobs = [job("runs", 4, 10_000), pair, job("single", 1, 100, 5000)]
    result = simulate("srsf-delay", racks([[4]]), jobs)
    assert times(result, "runs", "preempt") == [5000.0]
    assert times(result, "single") == times(result, "pair") == [5000.0]


def test_a_gang_that_claims_more_than_anybody_holds_may_be_worth_more_with_the_idle_gpus() -> None:
    jobs = [job("runs", 1, 1500), job("gang", 4, 300, 700)]
    result = simulate("srsf-delay", racks([[4]]), jobs)
    assert times(result, "gang") == times(result, "runs", "preempt") == [700.0]


def test_who_is_stopped_may_stop_others_at_once() -> None:
    """The pair makes room for four on the larger machine, then takes the other from who needs more."""
    jobs = [job("three", 3, 3000), job("pair", 2, 1400, 1), job("four", 4, 100, 1000)]
    result = simulate("srsf-delay:lease_s=600", racks([[3, 4]]), jobs)
    assert times(result, "four") == [1000.0]
    assert times(result, "pair") == [1.0, 1000.001]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(models=("", "resnet50", "bert-large"), varying=True))
def test_whoever_could_act_at_once_is_asked_at_once(world: World) -> None:
    """Else the controller, which is asked at other times than the simulator, would decide otherwise."""
    decide, applied = SrsfDelay.decide, SrsfDelay.plan_applied
    wakeups: list[float] = []

    def noted(self: SrsfDelay, state: ClusterState, now: float) -> Plan:
        plan = decide(self, state, now)
        wakeups.append(plan.wakeup_s)
        return plan

    def asked_again(self: SrsfDelay, plan: Plan, state: ClusterState, now: float) -> None:
        applied(self, plan, state, now)
        acts = [each for each in decide(self, state, now).decisions if not isinstance(each, Wait)]
        assert not acts or wakeups[-1] == now + LEAST_S

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SrsfDelay, "decide", noted)
        patch.setattr(SrsfDelay, "plan_applied", asked_again)
        simulate("srsf-delay", world.topology, world.jobs, world.outages, AUTHORS)


def sustained(machines: int, gang_s: float, gangs: int = 1) -> list[Job]:
    """Small jobs that keep nine tenths of machines of 4 GPUs busy for long; gangs that need all of them."""
    gpus = 4 * machines
    small = [job(f"s{number:04}", 1, 900, round(1000 * number / gpus)) for number in range(100 * gpus)]
    wide = [job(f"gang{number}", gpus, gang_s, 500 + number) for number in range(gangs)]
    return sorted([*small, *wide], key=lambda each: each.submit_s)


@pytest.mark.slow
@pytest.mark.parametrize("knowledge", [Knowledge.EXACT, Knowledge.NONE, Knowledge.HISTORY])
def test_a_gang_as_large_as_the_cluster_starts_while_small_jobs_go_on_for_ever(knowledge: Knowledge) -> None:
    jobs, machines = sustained(2, 1000), racks([[4, 4]])
    guarded = simulate("srsf-delay", machines, jobs, knows=Known(knowledge))
    assert times(guarded, "gang0")[0] < jobs[-1].submit_s / 2
    alone = simulate("srsf-delay:guard_share=0", machines, jobs, knows=Known(knowledge))
    assert times(alone, "gang0")[0] > jobs[-1].submit_s


@pytest.mark.slow
def test_the_less_of_an_equal_share_gangs_are_sure_of_the_less_others_wait() -> None:
    """Twenty gangs need the whole cluster for twenty times 2,000 s; one after another they would stop all."""
    jobs, machines = sustained(2, 2000, gangs=20), racks([[4, 4]])
    waits_s = {}
    for share in (0.05, 1):
        records = simulate(f"srsf-delay:guard_share={share}", machines, jobs).by_job
        waits_s[share] = sorted(each.queue_s for name, each in records.items() if name[0] == "s")
    assert waits_s[0.05][-1] < 5000 < waits_s[1][-1]
    assert sum(waits_s[0.05]) < sum(waits_s[1]) / 5


def test_turns_are_the_same_whatever_the_time_scale() -> None:
    """A day in place of a second changes nothing but the unit."""
    starts = []
    for scale in (1, 64):
        jobs = [
            Job(each.job_id, scale * each.submit_s, each.gpus, scale * each.duration_s)
            for each in sustained(1, 1000)
        ]
        policy = f"srsf-delay:lease_s={100 * scale},lease_restarts=0"
        result = simulate(policy, racks([[4]]), jobs)
        starts.append(times(result, "gang0")[0] / scale)
    assert starts[0] == pytest.approx(starts[1], rel=0.2)


def test_gpus_are_kept_for_the_one_whose_turn_it_is_but_not_from_who_is_gone_by_then() -> None:
    """The pair waits for two jobs that cannot be stopped; in the meantime small ones use what is free."""
    jobs = [fixed("a", 1, 1000), fixed("b", 1, 3000), job("pair", 2, 50, 1)]
    jobs += [Job("brief", 1500.0, 1, 100.0, preemptible=False)]
    jobs += [Job("endless", 1500.0, 1, 9000.0, preemptible=False)]
    machines = racks([[2]])
    result = simulate("srsf-delay:guard_share=1", machines, jobs)
    assert (times(result, "pair"), times(result, "brief")) == ([3000.0], [1500.0])
    result = simulate("srsf-delay:guard_share=0", machines, jobs)
    assert times(result, "pair")[0] > 9000


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(varying=True), share=st.sampled_from([0.01, 0.3, 1.0]))
def test_turns_leave_no_job_behind(world: World, share: float) -> None:
    records = simulate(f"srsf-delay:guard_share={share}", world.topology, world.jobs, world.outages).by_job
    assert all(each.status == "COMPLETED" for each in records.values())


@pytest.mark.parametrize(("restarts", "stopped_s"), [(0, 10.0), (3, 21.0), (10, 70.0)])
def test_a_lease_is_as_many_restarts_long(restarts: int, stopped_s: float) -> None:
    """A restart takes 7 s; the lease is ten seconds at least."""
    jobs = [job("long", 1, 10_000), job("short", 1, 50, 1)]
    policy = f"srsf-delay:lease_s=10,lease_restarts={restarts},guard_share=0"
    assert times(simulate(policy, racks([[1]]), jobs), "long", "preempt") == [stopped_s]


def test_who_is_stopped_is_as_patient_as_others() -> None:
    """The pair makes room for a whole machine; one GPU is left on each of two others, far too slow for it."""
    jobs = [fixed("a", 2, 90_000), fixed("b", 2, 90_000), job("pair", 2, 50_000, model=MODEL)]
    jobs += [Job("short", 5000.0, 2, 100.0, gpus_per_machine=2)]
    machines = racks([[3, 3, 2]])
    for patience, placed in ((0, ["rack"]), (4, ["machine"])):
        policy = f"srsf-delay:patience={patience},moves=0"
        result = simulate(policy, machines, jobs, profiles=AUTHORS)
        placings = [each for each in result.events if each["event"] in ("start", "migrate")]
        again = [each["level"] for each in placings if each["job"] == "pair" and each["t"] >= 5000]
        assert again == placed


def test_where_nothing_is_known_who_has_run_least_goes_first() -> None:
    """After an hour a job is taken to need four more, after five hours sixteen."""
    jobs = [job("long", 1, 50_000), job("new", 1, 40_000, 1)]
    none, margin = Known(Knowledge.NONE), "srsf-delay:guard_share=0,margin="
    starts = [times(simulate(f"{margin}{at}", racks([[1]]), jobs, knows=none), "new")[0] for at in (2, 5)]
    assert starts == list(AGES_S[1:3])


@pytest.mark.parametrize(("knowledge", "first"), [(Knowledge.HISTORY, "quick1"), (Knowledge.NONE, "slow1")])
def test_by_history_goes_first_whose_jobs_were_short(knowledge: Knowledge, first: str) -> None:
    """Two users' jobs ran for 10 s and 90 s before; their next ones take as long as each other."""
    jobs = [of("quick", "quick0", 10, 0), of("slow", "slow0", 90, 0), fixed("a", 1, 200), fixed("b", 1, 200)]
    jobs += [of("slow", "slow1", 100, 150), of("quick", "quick1", 100, 151)]
    result = simulate("srsf-delay", racks([[2]]), jobs, knows=Known(knowledge))
    assert min(("slow1", "quick1"), key=lambda name: times(result, name)[0]) == first


def test_equal_shares_of_users_count_before_claims() -> None:
    jobs = [of("a", "a0", 5000, 0), of("a", "a1", 5000, 0), of("a", "a2", 100, 1), of("b", "b0", 9000, 2)]
    fair = simulate("srsf-delay:fair=user", racks([[2]]), jobs)
    assert times(fair, "b0")[0] == 600.0
    assert times(simulate("srsf-delay", racks([[2]]), jobs), "b0")[0] > 4000.0


def test_who_is_over_an_equal_share_still_uses_what_nobody_else_wants() -> None:
    jobs = [of("a", f"a{number}", 1000, 0) for number in range(4)]
    result = simulate("srsf-delay:fair=user", racks([[4]]), [*jobs, of("b", "b0", 500, 1)])
    assert [times(result, f"a{number}")[0] for number in range(4)] == [0.0] * 4


@pytest.mark.parametrize(
    "knob",
    [
        "lease_s=0",
        "margin=0.5",
        "waste=-1",
        "patience=-1",
        "moves=-1",
        "guard_share=2",
        "lease_restarts=-1",
    ],
)
def test_wrong_knobs_are_refused(knob: str) -> None:
    with pytest.raises(InputError, match=knob.split("=")[0]):
        parse_policy(f"srsf-delay:{knob}")


def test_who_is_believed_to_need_more_has_its_turn_later() -> None:
    topology = racks([[2]])
    state = ClusterState(topology, CostModel(topology, None), Known(Knowledge.HISTORY))
    policy = parse_policy("srsf-delay").build(state)
    assert isinstance(policy, SrsfDelay)
    waiting = Scheduler(state, policy).submit(job("waits", 2, 100), 0.0)
    before_s = policy.known.guard.next_turn_s(1, 0.0)
    waiting.expected_s *= 3
    policy.revised(waiting, 0.0)
    assert policy.known.guard.next_turn_s(1, 0.0) == pytest.approx(3 * before_s)


def test_nobody_is_woken_for_the_turn_of_a_job_that_starts_at_once() -> None:
    topology = racks([[2]])
    state = ClusterState(topology, CostModel(topology, None))
    scheduler = Scheduler(state, parse_policy("srsf-delay").build(state))
    scheduler.submit(job("starts", 2, 100), 0.0)
    plan = scheduler.decide(0.0)
    assert [type(decision) for decision in plan.decisions] == [Start]
    assert plan.wakeup_s == inf


@pytest.mark.parametrize(("gang_s", "starts_s"), [(79.0, 10.0), (81.0, 100.0)])
def test_a_gang_stops_those_who_hold_more_than_it_claims_in_the_harmonic_mean(
    gang_s: float, starts_s: float
) -> None:
    """Less a restart, two GPUs are held for 83 and 1,983 s more: 159 GPU-seconds in the harmonic mean."""
    jobs = [job("short", 1, 100), job("long", 1, 2000), job("gang", 2, gang_s, 10)]
    policy = "srsf-delay:margin=1,lease_s=1,lease_restarts=0,guard_share=0"
    assert times(simulate(policy, racks([[2]]), jobs), "gang")[0] == starts_s


@pytest.mark.parametrize(("segment", "starts_s"), [(4, 10.0), (None, 381.0)])
def test_a_gang_in_segments_gets_the_block_whose_jobs_bring_least(
    segment: int | None, starts_s: float
) -> None:
    """r0 has a long job of three GPUs and one that ends in 371 s; r1 has four that end in 392 s.

    Four of the latter bring more than the gang, those of r0 do not. In the order in which jobs are stopped r1
    is the first that holds the gang.
    """
    jobs = [job("long", 3, 2000), job("last", 1, 380, 1), *(job(f"short{n}", 1, 400, 2) for n in range(4))]
    gang = Job("gang", 10, 4, 200, gpus_per_machine=1, segment=segment)
    policy = "srsf-delay:margin=1,lease_s=1,lease_restarts=0,guard_share=0"
    result = simulate(policy, racks([[1] * 4] * 2), [*jobs, gang])
    assert times(result, "gang")[0] == starts_s
    if segment is not None:
        stopped = [each["job"] for each in result.events if each["event"] == "preempt" and each["t"] == 10]
        assert stopped == ["long", "last"]
        assert reason(result, "last", "preempt").endswith("; clearing r0 for it costs least")


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(segments=True))
def test_nobody_is_stopped_for_a_job_that_does_not_start_then(world: World) -> None:
    result = simulate("srsf-delay:lease_s=300", world.topology, world.jobs, world.outages)
    started = {(each["t"], each["job"]) for each in result.events if each["event"] in ("start", "migrate")}
    for each in result.events:
        if each["event"] == "preempt":
            assert {(each["t"], by) for by in each["by"]} <= started


def test_a_job_of_16_of_18_machines_clears_one_rack_of_a_full_cluster_at_once() -> None:
    topology, draw = load_cluster("gb200-1152"), Random(4)
    sizes, fill, left = (1, 1, 2, 4, 8, 16, 32, 64), list[Job](), topology.gpus
    while left:
        gpus = min(draw.choice(sizes), left)
        gpus -= gpus % 4 if gpus > 4 else 0
        share = 4 if gpus >= 4 else None
        seconds = draw.uniform(10_000.0, 500_000.0)
        fill.append(Job(f"j{len(fill)}", 0.0, gpus, seconds, gpus_per_machine=share))
        left -= gpus
    large = Job("large", 5000.0, 64, 900.0, gpus_per_machine=4, segment=16)
    result = simulate("srsf-delay", topology, [*fill, large], until_s=5001.0)
    assert times(result, "large") == [5000.0]
    (start,) = [each for each in result.events if each["event"] == "start" and each["job"] == "large"]
    index = topology.machine_index
    assert len({topology.ancestors[index[name]][1] for name in start["gpus"]}) == 1
    held = {each["job"]: each["gpus"] for each in result.events if each["event"] == "start"}
    stopped = [each["job"] for each in result.events if each["event"] == "preempt"]
    assert stopped
    assert all(held[name].keys() & start["gpus"].keys() for name in stopped), "elsewhere nobody is stopped"
