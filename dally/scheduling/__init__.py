"""The scheduler's cycle, what it believes of running times, and recordings of what it decided."""
