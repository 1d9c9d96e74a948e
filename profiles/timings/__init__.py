"""Measured times of GPU work, and what they say about work nobody measured.

Lives here: the file format (`table`), which signatures are the same work (`keys`), corrections from members of a family
(`corrections`); torch.profiler's traces as signatures (`trace`), the clock that the GPU had (`clock`), and tables made
of both (`from_trace`).
Comes in: files; traces; signatures as the hook writes them.
Goes out: `Table`: measured times; corrections of modelled ones.
May import: profiles.errors, profiles.signature, profiles.kernel_names, profiles.descriptions, profiles.models.
"""
