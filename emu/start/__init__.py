"""emu/start."""
