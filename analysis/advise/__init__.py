"""Advice from a site's own history: what would have changed under Dally, for whom, and how sure that is."""
