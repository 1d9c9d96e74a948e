"""Operations on sparse tensors have right values where all that they get is small and known.

Lives here: what a sparse tensor consists of (`parts`), and the functions before its operations (`operations`,
`coalesce`).
Comes in: calls of ATen operations with sparse CUDA tensors. Goes out: values in emulated device memory, and which of
its bytes are known; sparse tensors with as many elements as the values say.
May import: `emu.control`'s other modules; torch and the standard library.
"""
