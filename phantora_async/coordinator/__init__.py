"""phantora_async/coordinator."""
