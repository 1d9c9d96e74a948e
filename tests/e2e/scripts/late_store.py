"""Rank 0 works in real time before it serves the store: the others wait for its server meanwhile."""

import hashlib
import os

from common import all_are_here, finish, start

if os.environ["RANK"] == "0":
    hashlib.pbkdf2_hmac("sha512", b"a password", b"salt", 3_000_000)
_, _, device = start()
all_are_here(device)
finish()
