"""ONES: candidate schedules that evolve, and what is guessed of the jobs' progress."""
