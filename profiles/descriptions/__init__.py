"""GPU and cluster descriptions, read from TOML files.

Lives here: strict reading of TOML, the search for a file by name, CUDA's device attributes.
Comes in: a shipped description's name or the path of a user's file.
Goes out: `Gpu` and `Cluster`, frozen and validated; ProfileError names file, line, key and fault.
May import: `profiles.errors`.
"""
