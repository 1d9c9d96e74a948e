"""The beginning of warnings that tell of a race: the program hangs or not by its timing."""

MAY_HANG = "this may hang: "
"""If the run then ends as a deadlock, its message has the warning, too."""
