"""The library's locks: a debug build asserts their order, and a fork leaves none of them taken in the child."""

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import HOOK, c_program
from .coordinator import Coordinator, device_file

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "sanitize",
    [
        pytest.param(False, id="plain", marks=pytest.mark.thorough),
        pytest.param(True, id="sanitized"),
    ],
)
def test_threads_use_the_library_while_others_fork(sanitize, library, tmp_path, request):
    linked = request.getfixturevalue("sanitized_library") if sanitize else library
    program = c_program(tmp_path, HERE / "test_forks.c", linked, sanitize)
    coordinator = Coordinator(tmp_path, lambda signature: (1000, 1500), lambda record: (0, 0))
    coordinator.start()
    command = [program, device_file(tmp_path), coordinator.path, coordinator.cost_table]
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("calls", "complaint"),
    [
        ("ph_lock(PH_LOCK_SEND); ph_lock(PH_LOCK_RECORDS); ph_lock(PH_LOCK_THREADS);", ""),
        ("ph_lock(PH_LOCK_RECORDS); ph_lock(PH_LOCK_SEND);", "the lock SEND is taken by a thread that has RECORDS"),
        ("ph_lock(PH_LOCK_SEND); ph_lock(PH_LOCK_SEND);", "the lock SEND is taken by a thread that has SEND"),
        ("ph_unlock(PH_LOCK_MEMORY);", "the lock MEMORY is given back by a thread that does not have it"),
        ("ph_lock(PH_LOCK_SEND); ph_lock_needed(PH_LOCK_RECORDS);", "what the lock RECORDS guards"),
        (
            "ph_lock(PH_LOCK_VMM); ph_lock(PH_LOCK_WATCH); ph_wait(PH_CONDITION_RELEASED, NULL);",
            "a thread waits while it has the lock VMM",
        ),
        ("ph_lock(PH_LOCK_KNOWN); ph_locks_before_fork();", "the lock CUPTI is taken by a thread that has KNOWN"),
    ],
)
def test_a_debug_build_asserts_the_order(calls, complaint, tmp_path):
    source, program = tmp_path / "order.c", tmp_path / "order"
    source.write_text(f'#include "core/lock.h"\nint main(void) {{ {calls} return 0; }}\n')
    files = [source, HOOK / "core" / "lock.c", HOOK / "core" / "run.c"]
    subprocess.run(["cc", "-pthread", "-DPH_CHECK_LOCKS", f"-I{HOOK}", "-o", program, *files], check=True)
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert complaint in ran.stderr
    assert (ran.returncode == 0) == (not complaint)
