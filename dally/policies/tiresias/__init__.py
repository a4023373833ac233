"""Tiresias: discretised two-dimensional least attained service."""
