"""The commands of ``python -m mlx_unpool_zoo``: a module for each, and what they share."""
