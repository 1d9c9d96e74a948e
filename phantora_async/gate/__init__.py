"""Budgets of many jobs: does each fit, is it fast enough, and has it become worse than its baseline?

Lives here: job_file (a file of jobs with their budgets), baseline (figures that were stored earlier), digest
(what is stored beside them), checking (runs
the jobs and judges their reports), checked (all of it in one call), forms (text, JSON, JUnit XML, Markdown).
Comes in: a TOML file; reports of runs.
Goes out: a verdict for each job, in words and for programs.
May import: api, budget, comparison, config, errors, figures, options, wording, profiles.
"""
