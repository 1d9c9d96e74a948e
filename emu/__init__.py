"""Everything that exists inside an emulated server.

This package also runs inside another environment's interpreter (`--python`): it uses the standard library and that
environment's torch only, imports itself relatively, and is loaded by location, under a name that is no script's.
"""
