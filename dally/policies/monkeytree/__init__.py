"""MonkeyTree: few migrations that keep every rack's uplinks to few jobs."""
