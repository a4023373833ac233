"""Drives the measurement: plans runs, launches them one after another, stores what they find."""
