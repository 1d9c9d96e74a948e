"""emu/control."""
