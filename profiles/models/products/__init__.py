"""Work that is mostly products of matrices: cuBLAS, cuDNN's convolutions and recurrent networks, fused attention.

Lives here: tiles of a product and how they are dealt to SMs (`tiles`), which engine multiplies what (`engines`), and a
module for each kind of work.
Comes in: a `Gpu`, a signature or a kernel's name.
Goes out: an `Estimate`, or the time of a part of it.
May import: `profiles.models.machine`, `profiles.descriptions`, `profiles.kernel_names`, `profiles.signature`.
"""
