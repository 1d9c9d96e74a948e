"""CPU-side weights that ranks share."""
