"""Recordings: every fact told to a scheduler and every plan it gave, on file, to be decided again."""
