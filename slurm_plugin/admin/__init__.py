"""What administrators install and check."""
