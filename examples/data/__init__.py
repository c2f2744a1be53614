"""Data of the examples: loaded from packages, read from folders, or drawn."""
