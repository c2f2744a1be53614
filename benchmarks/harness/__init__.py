"""Code that the benchmarks share: timing, charts and implementations to compare with."""
