"""Sweeps: many simulations over seeds, loads, policies, knobs and clusters, run side by side and resumed."""
