"""How far the simulator's prediction of a live run was from what happened, and where the error came from."""
