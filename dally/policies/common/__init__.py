"""What several policies use: queues, leases, rounds, reservations, placements, sizes."""
