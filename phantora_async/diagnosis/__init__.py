"""phantora_async/diagnosis."""
