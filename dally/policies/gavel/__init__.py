"""Gavel: time shares on GPU types by linear programs, carried out in rounds."""
