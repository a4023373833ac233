"""Scheduling policies, a file or a folder each; `registry` finds them by name."""
