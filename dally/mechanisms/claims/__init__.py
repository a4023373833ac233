"""The mechanism of `srsf-delay`: claims on the cluster, who gives way to them, and one round of offers."""
