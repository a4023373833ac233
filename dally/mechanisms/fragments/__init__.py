"""Cross-rack fragments: who has GPUs in which racks, and whom to move so that no rack has too many."""
