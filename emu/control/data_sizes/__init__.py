"""Sizes that follow from values nobody computed, by the policy of `--data-shapes`.

Comes in: calls of operations whose results have such sizes (`sized_ops`). Goes out: their results, and what the policy
chose, for the report (`chosen_sizes`).
May import: emu.contract.policies, emu.interpreter, emu.private, and of emu.control what computes operations.
"""
