"""Host memory of ranks whose values are made when somebody reads them (emu/hook/sources/host_pages.c).

Comes in: descriptors of userfaultfd(2), what pages refer to, faults. Goes out: pages.
May import: emu.interpreter.hook_library.
"""
