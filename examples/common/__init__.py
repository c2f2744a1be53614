"""What the programs share: the training loop, metrics."""
