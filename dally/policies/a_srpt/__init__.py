"""A-SRPT: shortest remaining time on a virtual machine orders the real jobs."""
