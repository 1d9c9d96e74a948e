"""Sharding propagation that ranks share."""
