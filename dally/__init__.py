"""What all of Dally stands on: cluster, jobs, profiles, the policies and the scheduler that asks them."""

__version__ = "0.2.0"
