"""A stand-in for Apex, for Megatron-LM on emulated GPUs: the same tensors are allocated, and nothing is computed."""
