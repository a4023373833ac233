"""Tests for policies of your own: random worlds, a simulation in memory, and what must hold for every policy.

It needs the extra `dally[testing]`. docs/policies/your-own.md shows its use.
"""

from dally.testing.properties import MODELS, PROPERTIES
from dally.testing.worlds import Result, World, racks, simulate, worlds

__all__ = ["MODELS", "PROPERTIES", "Result", "World", "racks", "simulate", "worlds"]
