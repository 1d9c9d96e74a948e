"""The line by which processes say that the times which they print are this machine's, in logs that the report reads."""

REAL_TIME = "phantora-async: this process uses no GPU, so its clock is this machine's"
"""The beginning of the line that such a process prints."""
