"""Choices by scores that nobody computes: they follow the policy of `--moe`.

Lives here: which calls are a choice, and what they yield (`routing`), what the policy chooses (`expert_choice`),
Transformer Engine's routers (`fused_routers`), candidates that are excluded by known values (`score_masks`), how often
each was chosen (`loads`), and the sizes of the groups of grouped products (`groups`).
Comes in: calls of operations on matrices of scores; the policy.
Goes out: indices in emulated device memory, marked as known; ROUTING records; sizes of groups.
May import: `emu.contract`, `emu.interpreter`, `emu.control`'s other modules; torch and the standard library.
"""
