"""Step times of parallel plans."""
