"""How long tests wait for what must happen: long, since only a test that fails takes it."""

LONGEST_S = 420.0
