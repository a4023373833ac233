"""HadarE: Hadar with forked jobs, whose copies train side by side."""
