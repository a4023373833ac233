"""`dally report`: runs side by side as one HTML page that needs nothing else."""
