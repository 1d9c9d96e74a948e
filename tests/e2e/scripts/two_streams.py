"""A kernel follows one of each of two streams, in each step; the long one is on the side stream, or on the main one."""

import torch

torch.cuda.set_device(0)
inputs = {"long": torch.empty(8192, 8192, device="cuda"), "short": torch.empty(1024, 1024, device="cuda")}
side = torch.cuda.Stream()
for on_side, on_main in (("long", "short"), ("long", "short"), ("short", "long"), ("short", "long")):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        inputs[on_side].cos_()
    inputs[on_main].sin_()
    torch.cuda.current_stream().wait_stream(side)
    inputs["long"].abs_()
    torch.cuda.current_stream().synchronize()
    torch.cuda.nvtx.mark("phantora.step")
