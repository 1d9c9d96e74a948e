"""How far the host model is from real jobs: `python -m profiles.tools.host_error --measured host.jsonl [--host NAME]
TRACE...`.

Counts a step's ops and API calls in torch.profiler traces, as the hook would see them (a library's own launches are
not calls of the program), prices them, and prints the model beside the measured host time of the same job, found by
its name.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from statistics import median

from profiles.host import HostModel, load_host
from profiles.tools.trace import Event, call_of, load, ops_of_launches

KIND_OF = {
    "cudaLaunchKernel": "launch", "cudaLaunchKernelExC": "launch", "cuLaunchKernel": "launch",
    "cuLaunchKernelEx": "launch",
    "cudaMemcpyAsync": "memcpy", "cudaMemsetAsync": "memcpy", "cudaEventRecord": "event",
    "cudaEventRecordWithFlags": "event",
    "cudaStreamWaitEvent": "event", "cudaEventQuery": "event", "cudaDeviceSynchronize": "sync",
    "cudaStreamSynchronize": "sync",
}  # fmt: skip


def counts(events: list[Event]) -> Counter[str]:
    """Ops, Python ops and calls by kind of one traced step."""
    found: Counter[str] = Counter()
    around = ops_of_launches(events)
    library = set()
    for event in events:
        category, name = event.get("cat"), str(event.get("name"))
        if category == "cpu_op":
            found["op"] += 1
            found["python_op"] += name == "PythonSubclass"
        elif category == "kernel" and name.startswith("ncclDevKernel"):
            found["nccl"] += 1
            found["launch"] -= 1
        elif category in ("cuda_runtime", "cuda_driver"):
            op = around.get(event.get("args", {}).get("correlation", -1))
            if (
                op is not None
                and name in KIND_OF
                and KIND_OF[name] in ("launch", "memcpy")
                and (call := call_of(op, name))
            ):
                library.add(call)
            else:
                found[KIND_OF.get(name, "query")] += 1
    found["library"] = len(library)
    return found


def host_ns(host: HostModel, found: Counter[str]) -> int:
    calls = sum(host.call_ns[kind] * found[kind] for kind in host.call_ns)
    return host.op_ns * found["op"] + host.python_op_ns * found["python_op"] + calls


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m profiles.tools.host_error", description=__doc__)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--measured", type=Path, required=True, help="JSON lines with job, mode, host_s")
    parser.add_argument("--host", default="xeon-h200")
    arguments = parser.parse_args()
    host = load_host(arguments.host)
    measured: dict[str, list[str]] = {}
    for line in arguments.measured.read_text().splitlines():
        row = json.loads(line)
        text = f"{row.get('mode', 'real')} {median(row['host_s']) * 1e3:.1f}"
        measured.setdefault(row["job"], []).append(text)
    print("| job | ops | python ops | launches | library | nccl | model ms | measured ms |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for path in arguments.traces:
        job = path.name.split(".")[0]
        found = counts(load(path))
        columns = [found[kind] for kind in ("op", "python_op", "launch", "library", "nccl")]
        shown = [job, *columns, f"{host_ns(host, found) / 1e6:.1f}", ", ".join(measured.get(job, []))]
        print("| " + " | ".join(map(str, shown)) + " |")


if __name__ == "__main__":
    main()
