"""Models that pool with indices and unpool by them, one file a family."""
