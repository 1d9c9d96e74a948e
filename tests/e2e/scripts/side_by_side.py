"""Each rank executes another script, on a server of its own. Arguments: command lines, one for each rank."""

import os
import runpy
import shlex
import sys

sys.argv = shlex.split(sys.argv[1 + int(os.environ["RANK"])])
sys.argv[0] = os.path.join(sys.path[0], sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
