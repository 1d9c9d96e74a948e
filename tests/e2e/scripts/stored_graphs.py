"""A program that stores its compiled graphs itself, one file for each rank, and loads them again on a thread that has
chosen no GPU, as vLLM does. Argument: the folder.
"""

from __future__ import annotations

import concurrent.futures
import gc
import os
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._inductor import standalone_compile
from torch._inductor.standalone_compile import AOTCompiledArtifact
from torch.fx.experimental.proxy_tensor import make_fx


def layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, torch.nn.functional.gelu(x) + torch.arange(64, device=x.device), weight)


rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
dist.barrier()
values = [torch.randn(*shape, device="cuda") for shape in ((32, 64), (64, 16), (16,))]
file = Path(sys.argv[1]) / f"rank{rank}"
if file.exists():
    stored = file.read_bytes()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        graph = pool.submit(AOTCompiledArtifact.deserialize, stored).result()
    print("loaded")
else:
    graph = standalone_compile(make_fx(layer)(*values), values, dynamic_shapes="from_example_inputs", aot=True)
    assert isinstance(graph, AOTCompiledArtifact)
    stored = graph.serialize()
    file.write_bytes(stored)
    print("stored")
found = graph(*values)
found = found if isinstance(found, torch.Tensor) else found[0]
kernels = [one for one in gc.get_objects() if type(one).__name__ == "CachingAutotuner" and one.launchers]
loaded_on = {one.device_props.index for one in kernels}
named = {int(gpu) for gpu in re.findall(rb"(?:_DeviceGuard\(|DeviceProperties\(type='cuda', index=)(\d+)", stored)}
print("result on", found.device, "kernels on", loaded_on, "file names", named)
dist.destroy_process_group()
