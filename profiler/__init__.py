"""The profiler: measures what distance between GPUs costs each model, and writes profiles."""
