"""Gandiva: affinity by gang size, time slicing, migration."""
