"""Cluster files in TOML: both forms, what is refused, and writing one back."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.cluster.toml_file import read_toml
from dally.cluster.toml_writer import write_toml
from dally.cluster.topology import Link, Machine, Ring, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import InputError

REGULAR = """
name = "small"

[[levels]]
name = "machine"
prefix = "gpu"
count = 2
gpus = 8
gpu_type = "h100"
slots = 2
slot_fabric = { bandwidth_bps = 3600e9, latency_s = 0 }
fabric = { bandwidth_bps = 900e9, latency_s = 1e-6 }
uplink = { bandwidth_bps = 200e9, latency_s = 2e-6 }

[[levels]]
name = "rack"
count = 5
uplink = { bandwidth_bps = 100e9, latency_s = 5e-6 }
"""

EXPLICIT = """
top_level = "core"

[[levels]]
name = "machine"
gpus = 8
gpu_type = "h100"
fabric = { bandwidth_bps = 900e9, latency_s = 1e-6 }
uplink = { bandwidth_bps = 200e9, latency_s = 2e-6 }

[[levels]]
name = "rack"
uplink = { bandwidth_bps = 100e9, latency_s = 5e-6 }

[[machines]]
names = "gpu[1-3]"

[[machines]]
names = "old[01-02],lone"
gpus = 2
gpu_type = "v100"
uplink = { bandwidth_bps = 10e9, latency_s = 9e-6 }

[[switches]]
name = "r1"
machines = "gpu[1-3]"

[[switches]]
name = "r2"
machines = "old[01-02]"
uplink = { bandwidth_bps = 40e9, latency_s = 8e-6 }

[[switches]]
name = "spine"
machines = "lone"
switches = "r[1-2]"
"""


def read(text: str) -> Topology:
    return read_toml(text, "c.toml", "c")


def test_a_regular_tree_is_numbered_level_by_level() -> None:
    small = read(REGULAR)
    assert small.name == "small"
    assert small.levels == ("machine", "rack", "network")
    assert [machine.name for machine in small.machines] == [f"gpu{number:02d}" for number in range(1, 11)]
    assert [domain.name for domain in small.level_domains[1]] == [f"rack{number}" for number in range(1, 6)]
    assert small.level_domains[1][1].children == (2, 3)
    assert small.gpus == 80


def test_links_of_a_regular_tree_reach_the_shape() -> None:
    shape = read(REGULAR).shape(((0, 8), (2, 8), (3, 8)))
    assert shape.rings == (
        Ring(4, Link(3600e9), 1),
        Ring(2, Link(900e9, 1e-6), 1),
        Ring(2, Link(200e9, 2e-6), 2, 3),
        Ring(2, Link(100e9, 5e-6), 2),
    )


def test_a_regular_tree_may_have_one_level_or_many() -> None:
    level = '[[levels]]\nname = "{}"\ncount = 2\nuplink = {{ bandwidth_bps = 1, latency_s = 0 }}\n'
    machine = level.format("node") + "gpus = 1\nfabric = { bandwidth_bps = 1, latency_s = 0 }\n"
    assert read(machine).levels == ("node", "network")
    deep = read(machine + "".join(level.format(name) for name in ("a", "b", "c", "d")))
    assert (deep.levels, deep.gpus) == (("node", "a", "b", "c", "d", "network"), 32)


def test_explicit_entries_override_the_defaults_of_their_level() -> None:
    cluster = read(EXPLICIT)
    assert (cluster.name, cluster.levels) == ("c", ("machine", "rack", "core"))
    assert [(m.name, m.gpus, m.gpu_type) for m in cluster.machines][2:5] == [
        ("gpu3", 8, "h100"),
        ("old01", 2, "v100"),
        ("old02", 2, "v100"),
    ]
    uplinks = {domain.name: domain.uplink for domain in cluster.domains[: len(cluster.machines) + 2]}
    assert uplinks["gpu1"] == Link(200e9, 2e-6)
    assert uplinks["lone"] == Link(10e9, 9e-6)
    assert uplinks["r1"] == Link(100e9, 5e-6)
    assert uplinks["r2"] == Link(40e9, 8e-6)


def test_a_machine_on_a_high_switch_is_a_rack_of_its_own_level() -> None:
    cluster = read(EXPLICIT)
    lone = cluster.machine_index["lone"]
    assert cluster.domains[cluster.ancestors[lone][1]].uplink is None
    assert cluster.shape(((0, 8), (lone, 2))).rings[-1] == Ring(2, Link(10e9, 9e-6), 2)


def without(text: str, pattern: str) -> str:
    changed, count = re.subn(pattern, "", text, count=1)
    assert count == 1
    return changed


def put(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = [", "not valid TOML"),
        ("", "neither levels with counts nor machines and switches"),
        ("sped = 1", "sped is not a known key; valid: name, top_level, islands, levels, machines, switches"),
        ("name = 3", "name is 3, must be a string"),
        ("levels = 3", "levels must be an array of tables"),
        (put(REGULAR, "gpus = 8", "gpus = 8\ngpu = 1"), r"levels\[0\].gpu is not a known key; valid: gpus, "),
        (put(REGULAR, "count = 5", "count = 5\ngpus = 1"), r"levels\[1\].gpus is not a known key"),
        (
            put(REGULAR, "gpus = 8", "gpus = 0"),
            r"levels\[0\].gpus is 0, must be a whole number of at least 1",
        ),
        (put(REGULAR, "gpus = 8", "gpus = 8.0"), r"levels\[0\].gpus is 8.0, must be a whole"),
        (put(REGULAR, "gpus = 8", "gpus = true"), r"levels\[0\].gpus is True, must be a whole"),
        (without(REGULAR, "gpus = 8\n"), r"levels\[0\].gpus is missing"),
        (without(REGULAR, "count = 5\n"), r"levels\[1\].count is missing"),
        (put(REGULAR, "count = 5", "count = -5"), r"levels\[1\].count is -5"),
        (put(REGULAR, "count = 5", "count = 5000000"), "more than 65536, the most"),
        (put(REGULAR, "slots = 2", "slots = 3"), r"levels\[0\]: slots is 3, must divide its 8 GPUs"),
        (put(REGULAR, '"rack"', '"machine"'), "machine, machine, network are not all different"),
        (put(REGULAR, '"gpu"', '"g p"'), r"levels\[0\].prefix: 'g p' is not a host list"),
        (put(REGULAR, "bandwidth_bps = 900e9, ", ""), r"levels\[0\].fabric.bandwidth_bps is missing"),
        (put(REGULAR, ", latency_s = 1e-6", ""), r"levels\[0\].fabric.latency_s is missing"),
        (put(REGULAR, "100e9", "-100e9"), r"levels\[1\].uplink.bandwidth_bps is -1e\+11, must be above 0"),
        (put(REGULAR, "100e9", "nan"), r"levels\[1\].uplink.bandwidth_bps is nan, must be above 0"),
        (
            put(REGULAR, "100e9", "inf"),
            r"levels\[1\].uplink.bandwidth_bps is inf, must be above 0 and finite",
        ),
        (put(REGULAR, "100e9", "'100G'"), r"levels\[1\].uplink.bandwidth_bps is '100G', must be a number"),
        (put(REGULAR, "5e-6", "-5e-6"), r"levels\[1\].uplink.latency_s is -5e-06, must be 0 or more"),
        (
            put(REGULAR, "latency_s = 5e-6", "latency_us = 5"),
            r"uplink.latency_us is not a known key; valid: band",
        ),
        (
            put(EXPLICIT, 'name = "rack"', 'name = "rack"\ncount = 2'),
            r"levels\[1\].count belongs to a regular",
        ),
        (put(EXPLICIT, "[[machines]]", "[[machines]]\nname = 'a'"), r"machines\[0\].name is not a known key"),
        (put(EXPLICIT, '"gpu[1-3]"', '"gpu[1-3"'), r"machines\[0\].names: 'gpu\[1-3' is not a host list"),
        (
            put(EXPLICIT, '"gpu[1-3]"', '"gpu[1-3],lone"'),
            r"machines\[1\].names: machine lone is defined twice",
        ),
        (put(EXPLICIT, '"gpu[1-3]"', '"gpu[1-2]"'), "switch r1 lists unknown machine gpu3"),
        (put(EXPLICIT, '"gpu[1-3]"', '"gpu[1-4]"'), "machine gpu4 is on no switch"),
        (
            put(EXPLICIT, 'machines = "lone"', 'machines = "lone,gpu1"'),
            "gpu1 is on two switches: r1 and spine",
        ),
        (put(EXPLICIT, '"r[1-2]"', '"r[1-3]"'), "switch spine lists unknown switch r3"),
        (put(EXPLICIT, '"r[1-2]"', '"r1"'), r"not connected: 2 top switches \(r2, spine\); put one above"),
        (put(EXPLICIT, 'name = "r2"', 'name = "r1"'), "switch r1 is defined twice"),
        (put(EXPLICIT, 'name = "r2"', 'name = "r2"\nswitches = "spine"'), "part of a cycle"),
        (
            put(EXPLICIT, 'name = "spine"', 'name = "spine"\nswitch = "x"'),
            r"switches\[2\].switch is not a known",
        ),
        (EXPLICIT + "uplink = { bandwidth_bps = 1, latency_s = 0 }", "spine is at the top"),
        (EXPLICIT + '[[switches]]\nname = "s"\n', "switch s has no machines below it"),
        (
            without(EXPLICIT, r"uplink = \{ bandwidth_bps = 100e9.*\n"),
            r"switches\[0\].uplink is missing .*levels\[1",
        ),
        (
            without(EXPLICIT, r"uplink = \{ bandwidth_bps = 200e9.*\n"),
            r"machines\[0\].uplink is missing .*levels\[0",
        ),
        (
            without(EXPLICIT, r'\[\[levels\]\]\nname = "rack"\nuplink.*\n'),
            "levels names 1 level, but .* 2 levels",
        ),
        ('[[switches]]\nname = "s"\n', "machines is missing"),
    ],
)
def test_a_wrong_file_is_refused_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(text)
    assert str(caught.value).startswith("c.toml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [REGULAR, EXPLICIT])
def test_writing_undoes_reading(text: str) -> None:
    assert read(write_toml(read(text))) == read(text)


def test_partitions_are_written_and_read_by_name() -> None:
    topology = read(REGULAR + '[partitions]\ngpu = "gpu[01-04]"\n"a b" = "gpu02"\n')
    assert {name: len(machines) for name, machines in topology.partitions.items()} == {"gpu": 4, "a b": 1}
    assert read(write_toml(topology)).partitions == topology.partitions
    with pytest.raises(InputError, match=r"c\.toml: partitions\.gpu: there is no machine nowhere"):
        read(REGULAR + '[partitions]\ngpu = "nowhere"\n')


def test_links_of_a_level_are_written_once() -> None:
    assert write_toml(read(REGULAR)).count("uplink") == 2
    assert "bandwidth_bps = 100e9, latency_s = 5e-6" in write_toml(read(REGULAR))


links = st.builds(
    Link,
    st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    st.floats(min_value=0, allow_infinity=False),
)
few_links = st.lists(links, min_size=1, max_size=3)
any_text = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def machines(draw: st.DrawFn, name: str, choices: Sequence[Link]) -> Machine:
    slots = draw(st.integers(1, 3))
    return Machine(
        name=name,
        gpus=slots * draw(st.integers(1, 4)),
        gpu_type=draw(st.sampled_from(["", "a100", 'o"dd\\ \x7f\n'])),
        fabric=draw(st.sampled_from(choices)),
        slots=slots,
        slot_fabric=draw(st.sampled_from([None, *choices])),
    )


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Trees of any depth and balance, with machines on any switch, in any order of names."""
    choices = draw(few_links)
    above = [None] + [draw(st.integers(0, child - 1)) for child in range(1, draw(st.integers(1, 8)))]
    names = draw(st.permutations([f"n{number}" for number in range(draw(st.integers(1, 12)))]))
    places = [draw(st.integers(0, len(above) - 1)) for _ in names]
    used: set[int | None] = {None}
    for place in places:
        current: int | None = place
        while current not in used:
            used.add(current)
            current = None if current is None else above[current]
    attached = [
        Attached(draw(machines(name, choices)), f"s{place}", draw(st.sampled_from(choices)))
        for name, place in zip(names, places, strict=True)
    ]
    switches = [
        Switch(f"s{number}", *((None, None) if up is None else (f"s{up}", draw(st.sampled_from(choices)))))
        for number, up in enumerate(above)
        if number in used
    ]
    return build_topology(draw(any_text), attached, switches)


@given(topologies())
def test_any_tree_survives_writing_and_reading(topology: Topology) -> None:
    assert read(write_toml(topology)) == topology


@given(topologies(), st.data())
def test_any_gang_on_any_tree_has_rings_for_all_its_machines(topology: Topology, data: st.DataObject) -> None:
    count = len(topology.machines)
    used = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    shape = topology.shape(tuple((index, 1) for index in used))
    members = 1
    for ring in shape.rings:
        members *= ring.members
    assert members >= len(used)
    assert sum(shape.racks) == (len(used) if shape.level else 0)
