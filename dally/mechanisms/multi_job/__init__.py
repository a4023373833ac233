"""Placing many jobs at once on workers of several kinds: categories, the matching market, the search."""
