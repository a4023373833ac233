import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from profiler.rank import facts
from profiler.rank.facts import chosen_algorithm, find_interface, root_qdisc, usual_precision
from profiler.rank.nvml import CounterError
from tests.profiler.rank.test_peers import FIRST
from workloads.group import Group
from workloads.settings import Backend, Precision

TOLD = (
    "n1:812:830 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    "n1:812:830 [0] NCCL INFO Broadcast: 400 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    "n1:812:830 [0] NCCL INFO AllReduce: 26214400 Bytes -> Algo TREE proto SIMPLE channel{Lo..Hi}={0..7}\n"
)


def test_the_algorithm_is_the_one_nccl_told_last_for_an_all_reduce(tmp_path: Path) -> None:
    told = tmp_path / "nccl.log"
    told.write_text(TOLD)
    assert chosen_algorithm({"NCCL_DEBUG_FILE": str(told), "NCCL_ALGO": "Ring"}) == ("TREE", "SIMPLE")


@pytest.mark.parametrize(
    ("env", "chosen"),
    [
        ({"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}, ("Ring", "Simple")),
        ({"NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "^LL128"}, (None, None)),
        ({"NCCL_DEBUG_FILE": "/nowhere/nccl.log"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_else_it_is_known_only_where_a_variable_leaves_no_choice(
    env: dict[str, str], chosen: tuple[str | None, str | None]
) -> None:
    assert chosen_algorithm(env) == chosen


@pytest.mark.parametrize(("in_hardware", "precision"), [(True, Precision.BF16), (False, Precision.FP32)])
def test_bf16_is_usual_where_the_gpu_has_it_itself(
    in_hardware: bool, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or in_hardware

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert usual_precision(torch.device("cuda", 0)) is precision


def test_on_cpus_fp32_is_usual() -> None:
    assert usual_precision(torch.device("cpu")) is Precision.FP32


def no_driver() -> None:
    raise CounterError("no driver")


@pytest.mark.parametrize(("told", "gpu_type"), [("h100", "h100"), (None, "NVIDIA H100 80GB HBM3")])
def test_slurms_type_and_cudas_name_of_a_gpu_are_two_facts(
    told: str | None, gpu_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(facts, "_nccl_version", lambda: (2, 27, 3))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(facts, "open_nvml", no_driver)
    group = Group(0, 1, torch.device("cuda", 0), Backend.NCCL)
    env = facts.gather_facts(group, [FIRST], told)
    assert (env.gpu_type, env.device_name) == (gpu_type, "NVIDIA H100 80GB HBM3")
    assert (env.gpu_count, env.nccl) == (1, "2.27.3")


def test_a_type_that_slurm_has_is_none_of_a_machine_without_gpus() -> None:
    group = Group(0, 1, torch.device("cpu"), Backend.GLOO)
    env = facts.gather_facts(group, [FIRST], "h100")
    assert (env.gpu_type, env.device_name, env.gpu_count, env.cuda, env.nccl) == (None,) * 5
    assert env.cpu
    assert env.kernel
    assert env.tcp_congestion_control


ADDRESSES = json.loads(
    """[
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "ens3", "addr_info": [{"family": "inet", "local": "10.1.0.4"}, {"local": "fe80::1"}]},
    {"ifname": "ens3d1", "addr_info": [{"family": "inet", "local": "10.2.0.4"}]},
    {"ifname": "ib0"}
    ]"""
)
SHAPED = json.loads(
    """[
    {"kind": "htb", "handle": "1:", "root": true, "options": {"r2q": 10, "default": "0x10"}},
    {"kind": "tbf", "handle": "10:", "parent": "1:10", "options": {"rate": 25000000, "burst": 262125}}
    ]"""
)


def test_the_interface_is_the_one_with_the_address() -> None:
    assert find_interface(ADDRESSES, "", "10.2.0.4") == "ens3d1"
    assert find_interface(ADDRESSES, "", "10.9.0.4") is None


@pytest.mark.parametrize(
    ("names", "interface"),
    [
        ("ens", "ens3"),
        ("=ens3d1", "ens3d1"),
        ("=ens", None),
        ("ib,ens3d", "ens3d1"),
        ("^lo", None),
        ("", None),
    ],
)
def test_a_variable_names_interfaces_by_prefix_or_exactly(names: str, interface: str | None) -> None:
    assert find_interface(ADDRESSES, names, "10.9.0.4") == interface


def test_the_queue_at_the_root_is_named_with_the_burst_of_its_shaper() -> None:
    assert root_qdisc(SHAPED) == ("htb", 262125)


def test_a_queue_without_a_burst_has_none() -> None:
    assert root_qdisc([{"kind": "noqueue", "root": True, "options": {}}]) == ("noqueue", None)
    assert root_qdisc([]) == (None, None)


@pytest.mark.parametrize(("address", "nic"), [("127.0.0.1", "lo"), ("192.0.2.77", None)])
def test_the_interface_of_this_machine_with_the_address_is_found(address: str, nic: str | None) -> None:
    group = Group(0, 1, torch.device("cpu"), Backend.GLOO)
    assert facts.gather_facts(group, [replace(FIRST, address=address)], None).nic == nic
