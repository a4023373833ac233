"""Studies: each answers one question once. They are kept to be run again, outside the wheel."""
