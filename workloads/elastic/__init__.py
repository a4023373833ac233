"""Elastic training: ranks join and leave a job that runs, without a checkpoint (ONES, SC'21)."""
