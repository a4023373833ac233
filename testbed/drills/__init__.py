"""Drills: a small cluster runs real jobs, one thing is broken on purpose, and what happened is judged."""
