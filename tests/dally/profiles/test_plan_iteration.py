"""What placements cost jobs that say how they train."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.cluster.topology import Allocation, Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.jobs.job import Job
from dally.jobs.knowledge import Known
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.allreduce import rings_time_s
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.iteration import Prediction
from dally.profiles.parallel.gpu_specs import GPUS
from dally.profiles.parallel.transformer import MODELS

GB_S = 8e9
RACKS, MACHINES = 4, 4
"""Machines of a rack."""


def cluster(gpu_types: str = "h100", machine: float = 50.0, rack: float = 100.0) -> Topology:
    """Machines with 8 GPUs; a type for each rack in turn; GB/s out of a machine and out of a rack."""
    types, machines = gpu_types.split(), RACKS * MACHINES
    attached = [
        Attached(
            Machine(f"n{number:02}", 8, types[number // MACHINES % len(types)], Link(450 * GB_S)),
            f"r{number // MACHINES}",
            Link(machine * GB_S),
        )
        for number in range(machines)
    ]
    racks = [Switch(f"r{number}", "top", Link(rack * GB_S)) for number in range(RACKS)]
    return build_topology("c", attached, [Switch("top", None, None), *racks])


def job(plan: str, model: str = "llama3-8b", batch: int = 64, gpu_type: str | None = None) -> Job:
    parsed = TrainingPlan.parse(f"{plan},sequence=4096")
    return Job("a", 0, parsed.gpus, 100, model=model, batch=batch, plan=parsed, gpu_type=gpu_type)


def on(*machines: int, each: int = 8) -> Allocation:
    return tuple((machine, each) for machine in machines)


def predicted(costs: CostModel, job: Job, allocation: Allocation) -> Prediction:
    found = costs.prediction(job, allocation)
    assert found is not None
    return found


COSTS = CostModel(cluster())
PLANS = st.sampled_from(
    [
        job("tp=8,dp=2"),
        job("tp=4,dp=4,zero=1"),
        job("dp=16,zero=3"),
        job("tp=2,pp=4,dp=2"),
        job("tp=8,pp=2,vp=2"),
        job("cp=4,tp=2,dp=2"),
        job("dp=16,ep=8", "qwen3-30b-a3b"),
        job("tp=2,pp=2,dp=4,ep=8", "qwen3-30b-a3b"),
    ]
)


@given(PLANS)
def test_each_step_apart_is_never_faster(job: Job) -> None:
    """From two full machines of a rack to GPUs of many machines and racks."""
    places = [
        [
            on(0, 1),
            on(0, MACHINES),
            on(0, MACHINES, 2 * MACHINES, 3 * MACHINES, each=4),
            on(*range(16), each=1),
        ],
        [
            on(0, 1),
            on(0, 1, 2, 3, each=4),
            on(0, 1, MACHINES, MACHINES + 1, each=4),
            on(*range(0, 16, 2), each=2),
        ],
    ]
    for chain in places:
        times = [predicted(COSTS, job, place).iteration_s for place in chain]
        assert times == sorted(times)
        assert COSTS.cost(job, chain[0]).slowdown == pytest.approx(1.0)


@given(PLANS, st.randoms(use_true_random=False))
def test_alike_placements_cost_the_same(job: Job, random: Random) -> None:
    """Other racks and other machines of them; by name, racks follow each other."""
    racks = random.sample(range(RACKS), 2)
    twos = [(rack, random.sample(range(MACHINES), 2)) for rack in racks]
    members = [MACHINES * rack + machine for rack, machines in twos for machine in machines]
    assert COSTS.cost(job, on(*sorted(members), each=4)) == COSTS.cost(job, on(0, 1, 4, 5, each=4))


@pytest.mark.parametrize("gpus", [2, 8, 16])
def test_gradients_of_replicas_take_about_as_long_as_a_ring(gpus: int) -> None:
    """One replica on each machine: what waits is the ring's time over the links, less what compute hides."""
    topology, asked = cluster(machine=1.0, rack=100.0), job(f"dp={gpus}", batch=64)
    place = on(*range(gpus), each=1)
    found = predicted(CostModel(topology), asked, place)
    shape = topology.shape(place)
    each_s = rings_time_s(shape.rings, 2 * MODELS["llama3-8b"].parameters)
    share = GPUS["h100"].constants.network / 8  # a GPU has an eighth of its machine's links
    assert found.comm_s == pytest.approx(each_s / share, rel=0.15)


def test_a_slower_rack_uplink_slows_only_what_crosses_it() -> None:
    slow = CostModel(cluster(rack=5.0))
    asked = job("tp=8,dp=4")
    assert predicted(slow, asked, on(0, 1, 2, 3)) == predicted(COSTS, asked, on(0, 1, 2, 3))
    across = on(0, 1, MACHINES, MACHINES + 1)
    assert predicted(slow, asked, across).iteration_s > 1.2 * predicted(COSTS, asked, across).iteration_s


def test_stages_ask_less_of_racks_than_replicas() -> None:
    """The same 32 GPUs over two racks: pipeline stages send activations, replicas all their gradients."""
    place, slow = on(0, 1, MACHINES, MACHINES + 1), CostModel(cluster(rack=5.0))
    stages, replicas = job("tp=8,dp=2,pp=2"), job("tp=8,pp=2,dp=2,order=tp-cp-pp-dp")
    costs = [slow.cost(each, place).slowdown for each in (stages, replicas)]
    assert costs[1] > 1.5 * costs[0]


def test_the_slowest_gpu_type_sets_the_pace_and_types_compare() -> None:
    costs, asked = CostModel(cluster("a100 h100")), job("tp=8,dp=2")
    a100, h100, mixed = (
        predicted(costs, asked, place).iteration_s for place in (on(0, 1), on(4, 5), on(0, 4))
    )
    assert h100 < a100 <= mixed
    assert costs.type_speeds(asked) == {"h100": 1.0, "a100": pytest.approx(h100 / a100)}
    assert costs.worker_speeds(asked)["h100"] == 1.0
    assert 0.2 < costs.worker_speeds(asked)["a100"] < 0.6
    assert costs.cost(replace(asked, gpu_type="a100"), on(0, 1)).slowdown == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("asked", "gap"),
    [
        (
            job("tp=8,dp=2", "transformer", gpu_type="h100"),
            "model 'transformer' is not known; valid: gpt-175b",
        ),
        (job("tp=8,dp=2", gpu_type="t4"), "GPU type 't4' is not known; valid: a100"),
        (job("tp=8,dp=2"), "GPU type 't4' is not known"),
        (job("pp=2,dp=8,stages=20-20", gpu_type="h100"), "plan: stages have 40 layers, the model has 32"),
    ],
)
def test_where_a_plan_does_not_tell_profiles_do(asked: Job, gap: str) -> None:
    """On two types also where it tells of one: what it says there cannot be held against a profile."""
    costs = CostModel(cluster("h100 t4"), load_profiles("gavel"))
    plain = replace(asked, plan=None)
    for place in (on(0, 1), on(0, 1, 2, 3, each=4)):
        assert costs.cost(asked, place) == costs.cost(plain, place)
    assert (costs.plan_gap(asked) or "").startswith(gap)
    assert costs.plan_gap(plain) is None
    assert costs.plan_gap(job("tp=8,dp=2", gpu_type="h100")) == ""


def test_a_device_may_be_called_as_cuda_does() -> None:
    assert CostModel(cluster("nvidia_h100_80gb_hbm3")).plan_gap(job("tp=8,dp=2")) == ""


def test_believed_costs_are_wrong_by_the_same_factors_for_all() -> None:
    believed = COSTS.believed(Known(profile_error=0.5, seed=3))
    asked = job("tp=8,dp=4")
    near, far = (believed.cost(asked, place).slowdown for place in (on(0, 1, 2, 3), on(0, 4, 8, 12)))
    assert near == pytest.approx(1.0)
    assert far >= near
    assert believed.prediction(asked, on(0, 1, 2, 3)) != COSTS.prediction(asked, on(0, 1, 2, 3))


def test_what_costs_rest_on_is_told() -> None:
    costs = CostModel(cluster())
    costs.cost(job("tp=8,dp=2"), on(0, 1))
    costs.cost(job("tp=8,dp=2", "unheard"), on(0, 1))
    told = costs.report()
    assert told.models_by_plan == ("llama3-8b",)
    assert told.plan_gaps[0].startswith("unheard: model 'unheard' is not known")
    assert {"models_by_plan", "plan_gaps"} <= told.data().keys()
    assert not {"models_by_plan", "plan_gaps"} & CostModel(cluster()).report().data().keys()


class TestContention:
    TOPOLOGY = cluster(rack=20.0)
    COSTS = CostModel(TOPOLOGY)

    def stretched(self, *jobs: tuple[Job, Allocation]) -> dict[str, float]:
        """Slowdowns of jobs that run side by side; those that go on as alone are left out."""
        shared = SharedLinks(self.COSTS)
        for asked, place in jobs:
            shared.start(asked, place)
        return {name: cost.slowdown for name, cost in shared.changes()}

    def test_replicas_over_one_rack_uplink_slow_each_other(self) -> None:
        one, two = replace(job("tp=8,dp=2"), job_id="one"), replace(job("tp=8,dp=2"), job_id="two")
        alone = self.COSTS.cost(one, on(0, 4)).slowdown
        found = self.stretched((one, on(0, 4)), (two, on(1, 5)))
        assert found.keys() == {"one", "two"}
        assert all(alone < slowdown < 2 * alone for slowdown in found.values())

    def test_jobs_of_which_no_axis_crosses_the_link_are_left_alone(self) -> None:
        """What stays in machines, or in a rack, takes nothing from a job over racks."""
        inside, across = replace(job("tp=8"), job_id="inside"), replace(job("tp=8,dp=2"), job_id="across")
        near = replace(job("tp=8,dp=2"), job_id="near")
        assert self.stretched((inside, on(2)), (across, on(0, 4)), (near, on(1, 3))) == {}

    def test_stages_take_less_of_a_rack_uplink_than_replicas(self) -> None:
        other = replace(job("tp=8,dp=2"), job_id="other")
        stages, replicas = job("tp=8,pp=2"), job("tp=8,dp=2")
        beside = [
            self.stretched((other, on(0, 4)), (each, on(1, 5))).get("other", 1.0)
            for each in (stages, replicas)
        ]
        assert beside[0] < beside[1]
