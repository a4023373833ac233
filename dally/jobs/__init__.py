"""One training job: what its user asks for, what it reports, and what is known of its running time."""
