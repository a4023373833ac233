"""JPS: sampling-based placement of many jobs at once on workers of several kinds."""
