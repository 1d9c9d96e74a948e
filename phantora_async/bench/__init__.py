"""phantora_async/bench."""
