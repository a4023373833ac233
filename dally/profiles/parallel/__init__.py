"""Step times of parallel plans: what one step computes and sends, and how long that takes."""
