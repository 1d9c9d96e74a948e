"""Names collectives and calls as traces of real GPUs do, so that tools which look for these names find them."""

from __future__ import annotations

from emu.contract.records import NcclKind, TraceKind
from netsim.collectives import Plan
from phantora_async.virtual_time.facts import DTYPE_NAMES, PAIRWISE, REDOP_NAMES, REDUCING, Collective
from profiles import CALL_KINDS

_KERNELS = {
    NcclKind.ALL_REDUCE: "AllReduce",
    NcclKind.ALL_GATHER: "AllGather",
    NcclKind.REDUCE_SCATTER: "ReduceScatter",
    NcclKind.BROADCAST: "Broadcast",
    NcclKind.REDUCE: "Reduce",
}
"""The operations that have kernels of their own; the others are made of sends and receives."""
_CALLS = {
    NcclKind.ALL_REDUCE: "allreduce",
    NcclKind.ALL_GATHER: "_allgather_base",
    NcclKind.REDUCE_SCATTER: "_reduce_scatter_base",
    NcclKind.BROADCAST: "broadcast",
    NcclKind.REDUCE: "_reduce_oop",
    NcclKind.ALL_TO_ALL: "all_to_all",
    NcclKind.SEND: "send",
    NcclKind.RECV: "recv",
    NcclKind.GATHER: "gather",
    NcclKind.SCATTER: "scatter",
}
_SCALARS = {
    "i8": "Char",
    "u8": "Byte",
    "i32": "Int",
    "u32": "UInt32",
    "i64": "Long",
    "u64": "UInt64",
    "f16": "Half",
    "f32": "Float",
    "f64": "Double",
    "bf16": "BFloat16",
    "f8e4m3": "Float8_e4m3fn",
    "f8e5m2": "Float8_e5m2",
}
_GATHERING = (NcclKind.ALL_GATHER, NcclKind.GATHER)
_SCATTERING = (NcclKind.REDUCE_SCATTER, NcclKind.SCATTER)
_CALL_NAMES = {
    "launch": "cudaLaunchKernel",
    "hot_launch": "cudaLaunchKernel",
    "memcpy": "cudaMemcpyAsync",
    "memset": "cudaMemsetAsync",
    "event": "cudaEventRecord",
    "sync": "cudaStreamSynchronize",
    "alloc": "cudaMalloc",
    "library": "cuLaunchKernelEx",
    "nccl": "cuLaunchKernelEx",
    "hot_nccl": "cuLaunchKernelEx",
}


KNOWN_NAMES = {"cudaEventRecordWithFlags": "cudaEventRecord", "cuLaunchKernelEx": "cuLaunchKernel"}
"""The calls that HolisticTraceAnalysis 0.5 does not know, with its name for such a call: it looks for launches before
it.
"""
SYNC_NAMES: dict[int, str] = {
    TraceKind.DEVICE_SYNC: "Context Sync",
    TraceKind.EVENT_SYNC: "Event Sync",
    TraceKind.STREAM_SYNC: "Stream Sync",
    TraceKind.STREAM_WAIT: "Stream Wait Event",
}
"""The names of synchronisations in CUPTI and Kineto."""


def call_name(caller: str, kind: int) -> str:
    """The call's name: the entry point if the hook knows its name, else the call that such work usually is."""
    if caller.startswith("cu") and caller[2:3].isalpha() and not caller.startswith(("cublas", "cudnn", "cufft")):
        return caller
    return _CALL_NAMES.get(CALL_KINDS[kind], caller) if kind < len(CALL_KINDS) else caller


def is_driver(name: str) -> bool:
    """Returns true if the call belongs to the driver's API."""
    return name.startswith("cu") and not name.startswith("cuda")


def kernel_name(collective: Collective, plan: Plan) -> str:
    """The name of the kernel: ``ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)``."""
    name = _KERNELS.get(NcclKind(collective.op))
    if name is None:
        return "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    if collective.op in REDUCING:
        redop = REDOP_NAMES[collective.redop] if collective.redop < len(REDOP_NAMES) else "sum"
        name += f"_{redop.capitalize()}_{DTYPE_NAMES[collective.dtype]}"
    return f"ncclDevKernel_{name}_{plan.algorithm.upper()}_{plan.protocol.upper()}(ncclDevKernelArgsStorage<4096ul>)"


def collective_name(collective: Collective) -> str:
    """The name of the collective in torch.distributed."""
    return _CALLS.get(NcclKind(collective.op), "unknown")


def dtype_name(collective: Collective) -> str:
    """The name of the type in PyTorch."""
    return _SCALARS[DTYPE_NAMES[collective.dtype]]


def elements(collective: Collective) -> tuple[int, int]:
    """The numbers of elements that a member gives and gets."""
    n, count = len(collective.ranks), collective.count
    if collective.op in _GATHERING:
        return count, count * n
    if collective.op in _SCATTERING:
        return count * n, count
    if collective.op == NcclKind.ALL_TO_ALL:
        return count * n, count * n
    return count, count


def bus_gb_per_s(collective: Collective, for_ns: int) -> float:
    """The bus bandwidth in GB/s as nccl-tests defines it: the rate that the slowest link would carry."""
    n = len(collective.ranks)
    given, got = elements(collective)
    nbytes = max(given, got) * collective.nbytes // max(collective.count, 1)
    factor = 1.0
    if collective.op == NcclKind.ALL_REDUCE:
        factor = 2 * (n - 1) / n
    elif collective.op not in PAIRWISE and collective.op not in (NcclKind.BROADCAST, NcclKind.REDUCE):
        factor = (n - 1) / n
    return nbytes * factor / for_ns if for_ns > 0 else 0.0
