"""The study of shared uplinks: its cluster, what it counts, its command."""

from pathlib import Path

from click.testing import CliRunner

from analysis.studies.fragments import BOUND, FragmentLog, main, oversubscribed


def test_four_to_one_leaves_an_uplink_for_each_of_two_fragments() -> None:
    topology = oversubscribed(racks=2, factor=4.0)
    machine, rack = topology.domains[0], topology.level_domains[1][0]
    assert (rack.gpus, topology.gpus) == (64, 128)
    assert machine.uplink is not None
    assert rack.uplink is not None
    assert rack.uplink.bandwidth_bps == BOUND * machine.uplink.bandwidth_bps


def test_fragments_are_counted_until_the_last_start() -> None:
    """Of two racks for 10 s each: one gang on both, then it is in one, then two are on both."""
    log = FragmentLog(oversubscribed(racks=2, factor=4.0))
    log.write(0.0, "start", job="a", gpus={"r0m0": 8, "r1m0": 8})
    log.write(10.0, "migrate", job="a", gpus={"r0m0": 8, "r0m1": 8})
    log.write(20.0, "start", job="b", gpus={"r0m2": 1, "r1m0": 1})
    log.write(20.0, "migrate", job="a", gpus={"r0m0": 8, "r1m1": 8})
    log.write(30.0, "end", job="a")
    log.write(40.0, "start", job="c", gpus={"r0m0": 1})
    log.write(90.0, "end", job="b")
    assert log.rack_s == {0: 20.0, 1: 40.0, 2: 20.0}


def test_the_command_writes_its_sections(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    document.write_text("<!-- monkeytree-dally -->\n<!-- end monkeytree-dally -->\n", encoding="utf-8")
    arguments = ["dally", "--policy", "fifo", "--seed", "1", "--racks", "4", "--write", str(document)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    assert "| `fifo` |" in document.read_text(encoding="utf-8")


def test_what_policies_know_is_asked_for_and_stands_above_the_table() -> None:
    arguments = ["dally", "--policy", "srsf-delay", "--seed", "1", "--racks", "4"]
    exact, none = (
        CliRunner().invoke(main, [*arguments, *more]).output for more in ((), ("--knowledge", "none"))
    )
    assert "Running times known: exact. `slurm`" in exact
    assert "Running times known: none instead of exact" in none
    assert exact.splitlines()[-1] != none.splitlines()[-1]


def test_alone_nobody_is_slowed_by_others() -> None:
    arguments = ["dally", "--policy", "fifo", "--seed", "1", "--racks", "4", "--oversubscription", "8"]
    shared, alone = (CliRunner().invoke(main, [*arguments, *more]).output for more in ((), ("--alone",)))
    network_ks = [float(output.split("| `fifo` |")[1].split("|")[5]) for output in (shared, alone)]
    assert network_ks[0] > network_ks[1]


def test_an_unknown_policy_is_one_line() -> None:
    result = CliRunner().invoke(main, ["--policy", "monkey"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: unknown policy 'monkey'; valid: ")
    assert result.output.count("\n") == 1
