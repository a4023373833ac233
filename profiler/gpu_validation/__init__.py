"""What only a machine with a GPU can show, tried in one go: `scripts/validate_gpu.sh`.

Needs Python's standard library alone: what else is missing on the machine is to be told, not stumbled over.
"""
