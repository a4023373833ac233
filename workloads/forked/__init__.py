"""Forked training: copies of one job train side by side and are averaged once in a slot (HadarE)."""
