"""Clusters from files: Dally's TOML, Slurm's configuration, published machine tables; some are shipped."""

from dally.cluster.links import DefaultLinks, scaled_links
from dally.cluster.load import load_cluster, shipped_clusters
from dally.cluster.toml_writer import write_toml

__all__ = ["DefaultLinks", "load_cluster", "scaled_links", "shipped_clusters", "write_toml"]
