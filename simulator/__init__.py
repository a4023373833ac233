"""Event-driven simulation of a cluster under the policies of `dally`."""
