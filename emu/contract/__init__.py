"""emu/contract."""
