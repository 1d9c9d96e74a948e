"""Computes the share of its time that a long run keeps when parts of the machine fail: `phantora-async goodput`.

Lives here: failure rates (`rates`), the closed form (`closed_form`), and by simulation (`simulation`), what a
report says (`inputs`), and all of it together (`document`, `text`).
Comes in: a report; failure rates, the costs of checkpoints and of restarts, a horizon.
Goes out: shares of time and their causes, the best interval between checkpoints, effective speed.
May import: nothing of the other rooms.
"""
