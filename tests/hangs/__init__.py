"""Programs that hang on GPUs, as others have published it, and programs that only look as if they would."""
