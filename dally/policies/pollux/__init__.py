"""Pollux: sizes, batches and places of elastic jobs by a genetic search."""
