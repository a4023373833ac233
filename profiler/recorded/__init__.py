"""Reads what `workloads.recorder` wrote: the traffic of a step, and the parallel plan behind it."""
