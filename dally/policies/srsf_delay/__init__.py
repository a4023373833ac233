"""The default: shortest remaining service first, with delay scheduling."""
