"""Modules used by several example programs: training, metrics, drawing and data sets."""
