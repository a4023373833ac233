"""ONES: candidate schedules of elastic jobs that evolve while jobs run."""
