"""The Metal kernels as machine code of an Apple GPU, without a Mac.

``toolchain`` compiles the exact text that MLX hands to Metal with Mesa's free compiler for the GPU of M1 and
M2, ``machine`` runs what comes out, and ``replay`` does that for a launch of the emulated device. ``recipe/``
says how the tools are made.
"""
