"""Hadar: prices for the GPUs of each server, and jobs that run where their payoff is greatest."""
