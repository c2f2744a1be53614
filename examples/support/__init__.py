"""Modules that the example programs share: training, metrics, drawing, and data sets."""
