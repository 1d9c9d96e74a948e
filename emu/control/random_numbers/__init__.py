"""Random numbers of small tensors are those that a GPU with the same seed would draw.

Lives here: the generator (`philox`), the distributions of PyTorch's kernels (`distributions`), and the functions before
random operations: those that fill a tensor (`fills`) and those with a course of their own (`choices`).
Comes in: calls of random operations, states of CUDA generators. Goes out: numbers in emulated device memory.
May import: `emu.control`'s other modules; torch and the standard library.
"""
