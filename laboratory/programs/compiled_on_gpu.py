"""Times of the kernels that torch.compile makes of small modules, with their programs.

    python compiled_on_gpu.py OUT.jsonl WORKERS SECONDS [PART OF A NAME ...]

Workers compile side by side for SECONDS at most; then one after the other measures what it has. With 0 workers this process does it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BEGIN = time.time()


def chosen(parts):
    import compiled_cases

    return [one for one in compiled_cases.CASES if not parts or any(part in one[0] for part in parts)]


def worker(out, index, workers, seconds, parts):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder = tempfile.mkdtemp(prefix="inductor")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.runtime import triton_heuristics

    from formats.ttir import one_line
    import sessions

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    tuners, now, count = [], [""], [0]
    run = triton_heuristics.CachingAutotuner.run

    def noting(self, *args, **kwargs):
        if self not in tuners:
            tuners.append(self)
        return run(self, *args, **kwargs)

    def suffix(self):
        count[0] += 1
        return f"{now[0]}k{count[0]}"

    triton_heuristics.CachingAutotuner.run = noting
    PythonWrapperCodegen.next_kernel_suffix = suffix
    cases = chosen(parts)
    ready, failed = [], []
    for number in range(index, len(cases), max(workers, 1)):
        name, make = cases[number]
        if time.time() - BEGIN > seconds:
            failed.append({"case": name, "error": "no time"})
            continue
        now[0] = f"c{[one[0] for one in chosen([])].index(name)}"
        try:
            torch._dynamo.reset()
            tuners.clear()
            call = make()
            call()
            call()
            torch.cuda.synchronize()
        except Exception as error:
            failed.append({"case": name, "error": repr(error)[:300]})
            continue
        programs = {}
        for tuner in tuners:
            launcher = tuner.launchers[0]
            key = getattr(launcher, "cache_hash", "")
            texts = list(Path(folder).rglob(f"{key}/*.ttir")) or list(Path(os.environ.get("TRITON_CACHE_DIR", folder)).rglob(f"{key}/*.ttir"))  # fmt: skip
            config = launcher.config
            programs[tuner.fn.__name__] = {"config": {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}, "program": one_line(texts[0].read_text()) if texts else ""}  # fmt: skip
        ready.append((name, call, programs))
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
        torch.ones(10, device="cuda").sum()
    much = torch.ones(80 << 20, device="cuda")
    if workers:
        print("ready", len(ready), len(failed), round(time.time() - BEGIN), flush=True)
        sys.stdin.readline()
    begin = time.time()
    try:
        lines = sessions.session([(name, call) for name, call, _ in ready], 5, much) if ready else []
    except Exception as error:
        lines = [{"case": "", "error": repr(error)[:300]}]
    programs = {name: found for name, _, found in ready}
    with open(out, "w") as file:
        for line in lines:
            file.write(json.dumps(line | {"programs": programs.get(line["case"], {})}) + "\n")
        for line in failed:
            file.write(json.dumps(line) + "\n")
    print("done", len(lines), round(time.time() - begin, 1), flush=True)
    os._exit(0)


def main():
    out, workers, seconds, parts = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:]
    if "--worker" in parts:
        at = parts.index("--worker")
        worker(out, int(parts[at + 1]), workers, seconds, parts[:at])
    if workers == 0:
        worker(out, 0, 0, seconds, parts)
    children = [
        subprocess.Popen([sys.executable, __file__, f"{out}.{index}", str(workers), str(seconds), *parts, "--worker", str(index)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for index in range(workers)
    ]  # fmt: skip
    for index, child in enumerate(children):
        line = child.stdout.readline()
        print(f"{time.time() - BEGIN:.0f} s: worker {index} {line.strip()}", flush=True)
    for index, child in enumerate(children):
        try:
            child.stdin.write("go\n")
            child.stdin.flush()
            print(f"{time.time() - BEGIN:.0f} s: worker {index} {child.stdout.readline().strip()}", flush=True)
            child.wait(20)
        except (BrokenPipeError, subprocess.TimeoutExpired) as error:
            print(index, repr(error)[:100], flush=True)
    with open(out, "w") as whole:
        for index in range(workers):
            part = Path(f"{out}.{index}")
            if part.is_file():
                whole.write(part.read_text())
                part.unlink()
    print(f"{time.time() - BEGIN:.0f} s: end", flush=True)


if __name__ == "__main__":
    main()
