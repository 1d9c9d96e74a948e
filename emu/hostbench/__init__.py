"""Small programs whose host time is measured, to find what a host takes for each kind of work."""
