"""emu/clock."""
