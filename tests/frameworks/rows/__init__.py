"""The jobs: a module for each framework, each with its `FRAMEWORK` and its `JOBS`."""
