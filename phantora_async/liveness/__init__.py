"""phantora_async/liveness."""
