"""emu/interpreter."""
