"""DRL: a small trained network sizes elastic jobs."""
