"""Dally as published: delay scheduling with tuned timers, network-sensitive preemption."""
