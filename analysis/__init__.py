"""Figures of runs, and the predictor held against what others measured."""
