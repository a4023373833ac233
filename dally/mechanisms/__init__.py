"""What policies are built from: queues, timers, leases, reservations, evictions."""
