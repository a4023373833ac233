"""The published machine tables: hand-written ones, and the real ones where they are at hand."""

from collections import Counter
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.errors import InputError

TRACES = Path(__file__).parents[3].parent / "shared" / "traces"

LINGJUN = "ip,DSW,PSW,ASW\nh1,G1,P1,S1\nh2,G1,P1,S1\nh3,G1,P2,S1\nh4,G1,P2,S2\n"
PHILLY = "machineId, number of GPUs, single GPU mem\nm1,8, 24GB\nm2,2, 12GB\nm3,8, 24GB\nm4,8, 24GB\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_lingjun_rack_is_an_asw_of_one_pod(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, LINGJUN))
    assert cluster.levels == ("machine", "rack", "pod", "network")
    assert [domain.name for domain in cluster.domains[4:]] == ["P1-S1", "P2-S1", "P2-S2", "P1", "P2", "G1"]
    assert [domain.gpus for domain in cluster.domains[4:]] == [16, 8, 8, 16, 16, 32]


def test_several_core_switches_get_a_network_above(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, LINGJUN + "h5,G2,P3,S1\n"))
    assert [domain.name for domain in cluster.level_domains[3]] == ["G1", "G2"]
    assert cluster.root.name == "network"


def test_philly_machines_share_racks_with_their_kind(tmp_path: Path) -> None:
    cluster = load_cluster(write(tmp_path, PHILLY), machines_per_rack=2)
    racks = {domain.name: domain.gpus for domain in cluster.level_domains[1]}
    assert racks == {"8x24GB-rack1": 16, "2x12GB-rack1": 2, "8x24GB-rack2": 8}
    assert cluster.gpu_types == ("12GB", "24GB")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LINGJUN + "h1,G1,P1,S2\n", "line 6: host h1 is already in line 2"),
        (LINGJUN + "h5,G1,P1\n", "line 6: 'h5,G1,P1' does not fill the columns ip, DSW, PSW, ASW"),
        (LINGJUN + "h5,G1,,S1\n", "line 6: 'h5,G1,,S1' does not fill"),
        (LINGJUN + "h5,G2,P1,S9\n", "line 6: P1 is below G2, in a line before below G1"),
        (LINGJUN + "h 5,G1,P1,S9\n", "line 6: 'h 5' is not a host list"),
        ("ip,DSW,PSW,ASW\n", "no machines"),
        (PHILLY + "m5,many,24GB\n", "line 6: number of GPUs is 'many', must be a whole number"),
        (PHILLY + "m5,0,24GB\n", "line 6: number of GPUs is '0'"),
        ("host,rack\na,b\n", "header is 'host,rack', must be 'ip,DSW,PSW,ASW' or 'machineId,"),
    ],
)
def test_a_wrong_table_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=message) as caught:
        load_cluster(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_racks_of_no_machines_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="machines per rack is 0, must be at least 1"):
        load_cluster(write(tmp_path, PHILLY), machines_per_rack=0)


def test_a_rack_size_is_refused_where_the_cluster_has_racks(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="machines per rack are for the Philly machine list"):
        load_cluster(write(tmp_path, LINGJUN), machines_per_rack=4)


def real(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"../shared/traces/{name} is not at hand")
    return path


@pytest.mark.trace
def test_the_real_lingjun_network_has_119_racks_in_3_pods() -> None:
    cluster = load_cluster(real("alibaba_lingjun_topo.csv"))
    assert [len(level) for level in cluster.level_domains] == [847, 119, 3, 1]
    assert sorted(domain.gpus // 8 for domain in cluster.level_domains[2]) == [179, 306, 362]
    assert cluster.gpus == 6776


@pytest.mark.trace
def test_the_real_philly_list_has_2490_gpus() -> None:
    cluster = load_cluster(real("philly_cluster_machine_list.csv"))
    assert cluster.gpus == 2490
    assert Counter(machine.gpus for machine in cluster.machines) == {2: 321, 8: 231}
    assert len(cluster.level_domains[1]) == 41 + 29
