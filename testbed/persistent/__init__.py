"""A cluster on this machine that stays up when the command that brought it up has ended."""
