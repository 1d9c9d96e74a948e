"""The hook library as a file: what a process must have left to load it."""

import struct
from pathlib import Path

PT_TLS = 7
OPTIONAL_STATIC_TLS_NBYTES = 512
"""The number of bytes that glibc keeps for thread-local variables at fixed places of libraries that a program loads
after its start (`glibc.rtld.optional_static_tls`). All such libraries of a process share it.
"""


def test_thread_local_variables_leave_room_for_those_of_other_libraries(library: Path) -> None:
    image = library.read_bytes()
    (headers,) = struct.unpack_from("<Q", image, 32)
    nbytes, count = struct.unpack_from("<HH", image, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", image, headers + i * nbytes) for i in range(count)]
    (in_memory,) = [segment[6] for segment in segments if segment[0] == PT_TLS]
    assert 0 < in_memory <= 0.75 * OPTIONAL_STATIC_TLS_NBYTES
