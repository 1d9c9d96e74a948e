"""Reads from an op's arguments in a trace the library call that it makes: attention, recurrent layers, batch norm."""

from __future__ import annotations

from typing import Any

from profiles.signature import Norm, Rnn, Sdpa, Shape
from profiles.timings.layouts import channels_last

DTYPES = {"float": "f32", "c10::BFloat16": "bf16", "c10::Half": "f16", "double": "f64", "long int": "i64", "int": "i32"}
RECURRENT_MODES = ("relu", "tanh", "lstm", "gru")  # in the order of cudnnRNNMode_t
NORMS = ("aten::cudnn_batch_norm", "aten::cudnn_batch_norm_backward")


def attention(args: dict[str, Any], name: str, sizes: tuple[Shape, ...]) -> Sdpa:
    forward = name.endswith("forward")
    dims, concrete = args["Input Dims"], args["Concrete Inputs"]
    q, k, v = map(tuple, dims[:3] if forward else dims[1:4])
    dropout, causal = (concrete[9], concrete[10]) if forward else (concrete[13], concrete[14])
    return Sdpa(
        direction="fwd" if forward else "bwd",
        q=q,
        k=k,
        v=v,
        dtype=DTYPES[args["Input type"][0]],
        causal=causal == "True",
        dropout=float(dropout or 0) > 0,
        op=name,
        sizes=sizes,
    )


def recurrent(args: dict[str, Any], name: str, direction: str, sizes: tuple[Shape, ...]) -> Rnn:
    mode, hidden, projection, layers, batch_first = args["Concrete Inputs"][10 if direction != "fwd" else 6 :][:5]
    bidirectional = args["Concrete Inputs"][17 if direction != "fwd" else 13]
    steps, batch, width = args["Input Dims"][0]
    if batch_first == "True":
        steps, batch = batch, steps
    dtype = DTYPES[args["Input type"][0]]
    return Rnn(
        direction=direction,
        mode=RECURRENT_MODES[int(mode)],
        algorithm="standard",
        steps=steps,
        batch=batch,
        input=width,
        hidden=int(hidden),
        projection=int(projection) or int(hidden),
        layers=int(layers),
        bidirectional=bidirectional == "True",
        dtype="tf32" if dtype == "f32" else dtype,
        op=name,
        sizes=sizes,
    )


def batch_norm(args: dict[str, Any], name: str, sizes: tuple[Shape, ...]) -> Norm:
    """The call of batch norm. PyTorch has cuDNN keep the pixels of channels-last images between the passes of a
    training step.
    """
    strides = args.get("Input Strides") or [[]]
    last = channels_last(args["Input Dims"][0], strides[0])
    return Norm(
        direction="bwd" if name.endswith("backward") else "fwd",
        mode="spatial_persistent" if last else "spatial",
        x=sizes[0],
        dtype=DTYPES[args["Input type"][0]],
        layout="nhwc" if last else "nchw",
        op=name,
        sizes=sizes,
    )
