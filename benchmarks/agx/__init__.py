"""Runs the Metal kernels as machine code of an Apple GPU, without a Mac.

``toolchain`` compiles the source that MLX passes to Metal with Mesa's free compiler for the GPUs of M1 and
M2. ``machine`` runs the result, and ``replay`` does so for a launch of the emulated device. ``recipe/``
builds the tools.
"""
