"""Importers: turn published figures into profiles; each builds the profiles of one shipped set."""
