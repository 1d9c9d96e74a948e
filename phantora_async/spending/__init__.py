"""Computes the cost of training: money and energy of a step, of tokens, of a whole job.

Lives here: the energy of the steps that count, from what kernels draw (`energy`); what a report says of a job (`job`);
money and energy together (`bill`), as lines of text (`text`); the options of commands that ask for it (`asked`).
Comes in: costs with the power they draw; a report; a table of prices.
Goes out: the report's part `energy`; figures in money, joules and kilowatt-hours.
May import: profiles; errors.
"""
