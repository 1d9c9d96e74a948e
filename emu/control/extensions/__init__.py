"""Operations of other libraries, such as fbgemm's, have right values where all that they get is small and known, also
if that decides how many they have (torchvision's NMS); those of flash-attn, and PyTorch's like it, tell which pairs
they compute.

Lives here: the function before those that a library brings for CUDA and for CPUs (`operations`), and before attention
with packed sequences or a window (`attention`, `packed_attention` for Transformer Engine's).
Comes in: libraries that `torch.ops.load_library` loads, and calls of their operations. Goes out: values in emulated
device memory, and which of its bytes are known.
May import: `emu.private`, `emu.control`'s other modules; torch and the standard library.
"""
