"""Tries to change what a server may only read, and prints which attempts succeeded."""

import ctypes
import json
import os
import subprocess
from pathlib import Path

import torch

NEW_GROUP_NAMESPACE = 0x02000000
torch.ones(1 << 20).cuda()  # it is kept for all ranks
runtime = Path(os.environ["LD_LIBRARY_PATH"].split(":")[0]).parent
mine = [runtime / "ranks", runtime / f"server{os.environ['GROUP_RANK']}"]
done: list[str] = []


def writable(path: Path) -> bool:
    """Without writing: control files of the kernel are among them."""
    try:
        if path.is_dir():
            probe = path / "probe"
            probe.mkdir()
            probe.rmdir()
        elif path.is_file() or path.is_block_device():
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY))
        else:
            return False
    except OSError:
        return False
    return True


def below(folder: Path) -> list[Path]:
    return [folder, *(Path(at, name) for at, folders, files in os.walk(folder) for name in (*folders, *files))]


for path in [*below(Path("/sys")), *below(Path("/proc/sys")), *below(runtime)]:
    if not path.is_symlink() and not any(path.is_relative_to(folder) for folder in mine) and writable(path):
        done.append(f"write {path}")
devices = {
    path.name
    for path in Path("/dev").iterdir()
    if not path.is_symlink() and (path.is_char_device() or path.is_block_device())
}
done += [f"see /dev/{name}" for name in devices - {"null", "zero", "full", "random", "urandom", "tty"}]
if (
    os.access("/dev/null", os.W_OK)
    and subprocess.run(["chmod", "666", "/dev/null"], capture_output=True).returncode == 0
):
    done.append("change /dev/null")
for number in os.listdir("/proc/self/fd"):  # what the rank has inherited
    try:
        target = os.readlink(f"/proc/self/fd/{number}")
        os.close(os.open(f"/proc/self/fd/{number}", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        continue
    path = Path(target)
    if target == "/dev/userfaultfd":  # nothing can be written to it: it tells of faults of the caller's own memory
        continue
    if not target.endswith(".log") and target != "/dev/null" and not any(path.is_relative_to(one) for one in mine):
        done.append(f"write to {target}, which is open")
if ctypes.CDLL(None).unshare(NEW_GROUP_NAMESPACE) == 0:
    done.append("a cgroup namespace")
Path("/tmp/mounted").mkdir()
for kind in ("cgroup2", "sysfs", "proc", "bpf", "debugfs", "tracefs"):
    if subprocess.run(["mount", "-t", kind, "none", "/tmp/mounted"], capture_output=True).returncode == 0:
        done.append(f"mount {kind}")
for options in ("remount,rw,bind", "remount,rw"):
    if subprocess.run(["mount", "-o", options, "/sys/fs/cgroup"], capture_output=True).returncode == 0:
        done.append(f"mount -o {options}")
print(json.dumps(done))
