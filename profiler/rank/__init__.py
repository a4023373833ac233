"""What every rank of a launch does: measure compute, buckets, all-reduces and iterations; never imported."""
