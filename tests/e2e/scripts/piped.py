"""A launcher that pipes its rank's output, as many do to put the rank's number before each line; then it starts the
command itself. Argument: the folder of phantora-async.
"""

import os
import subprocess
import sys

RANK = """
import sys, torch
for stream in (sys.stdin, sys.stdout, sys.stderr):
    stream.reconfigure(errors="replace", encoding="ascii")
print("rank", torch.cuda.current_device(), torch.ones(3, device="cuda").sum().item(), "\\u2713", sys.stdin.read())
print("an error \\u2713", file=sys.stderr)
"""
AS_RANK = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


def start(words, environment, said=""):
    done = subprocess.run(words, env=environment, input=said, capture_output=True, text=True)
    print(done.returncode, done.stdout.strip(), "|", done.stderr.strip(), flush=True)


start([sys.executable, "-c", RANK], AS_RANK, "said")
command = [sys.executable, "-m", "phantora_async"]
environment = os.environ | {"PYTHONPATH": sys.argv[1]}
start([*command, "--version"], environment)
start([*command, "run", "-n", "1", __file__], environment)
buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
words = [sys.executable, "-c", "import sys; print(sys.stdin.read())"]
with subprocess.Popen(words, env=buffered, stdin=-1, stdout=-1, stderr=-1) as child:
    child.stdout.close()
    child.stdin.close()
    print("closed", child.wait(), child.stderr.read().splitlines()[-1], flush=True)
