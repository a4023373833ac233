"""From raw files to profiles, tables and figures, and profiles from the tables of others."""
