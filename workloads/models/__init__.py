"""The models, one file for each or for a family; each has `make_task(name, size)`, see `workloads.task`."""
