"""`workloads.train`, but all ranks except the first read what the copies share a second late."""

import os
import runpy
import time
from collections.abc import Mapping
from typing import Any

from workloads.forked.exchange import Exchange
from workloads.forked.slot import SlotStart

_slot = Exchange.slot


def _late(self: Exchange, number: int) -> tuple[SlotStart, Mapping[str, Any]]:
    if os.environ["RANK"] != "0":
        time.sleep(1)
    return _slot(self, number)


Exchange.slot = _late  # type: ignore[method-assign]
runpy.run_module("workloads.train", run_name="__main__", alter_sys=True)
