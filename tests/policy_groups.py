"""Policies by how long they take to decide."""

from dally.policies.registry import policy_names

SEARCHING = {"elastic-scaling", "gavel", "hadar", "hadar-e", "jps", "monkeytree", "ones", "optimus", "pollux"}
"""Policies that search, or solve a program, at each decision: with many jobs they take minutes."""
QUICK = [name for name in policy_names() if name not in SEARCHING]
