"""The mechanism of `dally`: claims on the cluster, who gives way to them, and one round of offers."""
