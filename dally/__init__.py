"""The ground floor of Dally: cluster, jobs, profiles, placement and the policies that decide."""

__version__ = "0.1.0"
