"""`python -m phantora_async` is the console script."""

from phantora_async.cli import main

main()
