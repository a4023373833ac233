"""The controller as a daemon, its pages, and the commands that ask it."""
