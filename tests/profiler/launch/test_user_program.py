import pytest

from dally.profiles.schema import PointShape
from profiler.launch.user_program import UserProgram
from profiler.spec import PlannedRun

RUN = PlannedRun("rack-2x4", "rack", PointShape(2, 4, "blocked", 1), ("n1", "n2"), None)


def test_every_machine_is_told_its_part_by_variables_and_placeholders() -> None:
    argv = ("./train.sh", "{rank}/{machines}", "{gpus} of {world}", '{"lr": 1}', "{master}:{port}")
    first, second = UserProgram(argv).commands(RUN, "10.0.0.1")

    assert first.argv[:4] == ("./train.sh", "0/2", "4 of 8", '{"lr": 1}')
    assert second.argv[1] == "1/2"
    assert (first.host, second.host) == ("n1", "n2")
    assert [each.env["NODE_RANK"] for each in (first, second)] == ["0", "1"]
    assert {name: first.env[name] for name in ("NNODES", "NPROC_PER_NODE", "MASTER_ADDR")} == {
        "NNODES": "2",
        "NPROC_PER_NODE": "4",
        "MASTER_ADDR": "10.0.0.1",
    }
    assert first.argv[4] == second.argv[4] == f"10.0.0.1:{first.env['MASTER_PORT']}"


def test_a_torchrun_without_options_takes_them_from_variables() -> None:
    command = UserProgram(("torchrun", "train.py")).commands(RUN, "10.0.0.1")[1]
    assert command.argv == ("torchrun", "train.py")
    assert {name: value for name, value in command.env.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": command.env["MASTER_PORT"],
    }


@pytest.mark.parametrize("torchrun", [("/opt/bin/torchrun",), ("python", "-m", "torch.distributed.run")])
def test_what_a_torchrun_is_told_of_one_run_gives_way(torchrun: tuple[str, ...]) -> None:
    options = ("--standalone", "--nproc_per_node", "8", "--nnodes=1", "--rdzv-endpoint", "host:1", "--tee=3")
    script = ("train.py", "--nnodes=9", "--standalone")
    command = UserProgram((*torchrun, *options, *script)).commands(RUN, "10.0.0.1")[0]

    meeting = f"--rdzv-endpoint=10.0.0.1:{command.env['MASTER_PORT']}"
    assert command.argv == (*torchrun, "--nproc-per-node=4", "--nnodes=2", meeting, "--tee=3", *script)
