"""Policies for what nobody computes: routing (`--moe`), sizes (`--data-shapes`), lengths of responses (`--lengths`),
loading data (`--loaders`).

Comes in: the text of an option. Goes out: the parsed policy.
May import: nothing of ours.
"""
