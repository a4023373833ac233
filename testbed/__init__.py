"""The whole system on real nodes, or on local ones."""
