"""The nvidia-smi of emulated servers."""
