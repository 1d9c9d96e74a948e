"""Policies for what nobody computes: routing (`--moe`), sizes (`--data-shapes`), loading data (`--loaders`).

Comes in: the text of an option. Goes out: the parsed policy.
May import: nothing of ours.
"""
