"""cudaDeviceAttr numbers (enum of CUDA 13's driver_types.h) and their values.

What every data-centre GPU since Ampere answers alike is a constant here, as an H100 and an H200 answered with driver
580 (2026-11-21); the two agreed on all of these. What differs between GPUs comes from the GPU's file.
"""

from __future__ import annotations

# Block and grid sizes, texture and surface limits, and flags: number -> value.
COMMON: dict[int, int] = {
    1: 1024,  # threads per block
    2: 1024,  # block x
    3: 1024,  # block y
    4: 64,  # block z
    5: 2**31 - 1,  # grid x
    6: 65535,  # grid y
    7: 65535,  # grid z
    8: 49152,  # shared memory per block without opt-in
    9: 65536,  # constant memory
    10: 32,  # warp size
    11: 2**31 - 1,  # pitch
    12: 65536,  # registers per block
    14: 512,  # texture alignment
    15: 1,  # copies overlap kernels
    17: 0,  # no run time limit
    18: 0,  # discrete
    19: 1,  # maps host memory
    20: 0,  # compute mode: default
    21: 131072, 22: 131072, 23: 65536, 24: 16384, 25: 16384, 26: 16384, 27: 32768, 28: 32768, 29: 2048,  # textures
    30: 512,  # surface alignment
    31: 1,  # concurrent kernels
    32: 1,  # ECC
    33: 0,  # PCI bus
    34: 6,  # PCI device
    35: 0,  # not TCC
    41: 1,  # unified addressing
    42: 32768, 43: 2048, 44: 1, 45: 32768, 46: 32768, 47: 8192, 48: 8192, 49: 32768,  # textures
    50: 0,  # PCI domain
    51: 32,  # texture pitch alignment
    52: 32768, 53: 32768, 54: 2046,  # cube maps
    55: 32768, 56: 131072, 57: 65536, 58: 16384, 59: 16384, 60: 16384, 61: 32768, 62: 2048, 63: 32768, 64: 32768,
    65: 2048, 66: 32768, 67: 32768, 68: 2046,  # surfaces
    69: 268435456, 70: 131072, 71: 65000, 72: 2097120, 73: 32768, 74: 32768, 77: 32768,  # linear and mipmapped textures
    78: 1,  # stream priorities
    79: 1,  # global L1 cache
    80: 1,  # local L1 cache
    82: 65536,  # registers per SM
    83: 1,  # managed memory
    84: 0,  # one GPU per board
    85: 0,
    86: 0,  # no native atomics with the host
    87: 2,  # single to double precision ratio
    88: 0,  # no pageable access
    89: 1,  # concurrent managed access
    90: 1,  # compute preemption
    91: 1,  # host pointers of registered memory
    92: 0, 93: 0, 94: 0,  # reserved
    95: 1,  # cooperative launch
    96: 1,
    98: 0,  # no flush of remote writes
    99: 1,  # host registration
    100: 0, 101: 0, 102: 1, 103: 1, 104: 0, 105: 0,  # page tables; virtual memory management and its handle types
    107: 1,
    109: 134217728,  # access policy window
    110: 1,
    111: 1024,  # shared memory the driver keeps per block
    112: 1,  # sparse arrays
    113: 1,  # read-only host registration
    114: 1,  # timeline semaphores
    115: 1,  # memory pools
    116: 1,  # GPUDirect RDMA
    117: 1,
    118: 100,
    119: 9,  # pool handles: file descriptor and fabric
    120: 1,  # clusters
    121: 1, 122: 1, 123: 1, 124: 1,
    125: 1,  # IPC events
    126: 4,  # memory synchronisation domains
    127: 1, 128: 1, 129: 1,
    130: 0,  # no NUMA node of its own
    131: -1,
    132: 0,
    133: 0,  # no MPS
    134: 0,
    135: 0, 136: 0, 137: 0, 138: 0,
    141: 1, 142: 1, 143: 0, 144: 1, 145: 1, 146: 0, 147: 0,
}  # fmt: skip

# Since compute capability 9.0 alone: cluster launch, multicast and tensor maps, several synchronisation domains.
SINCE_HOPPER = (120, 127, 132)
# Share of the L2 that persisting accesses may take: 39,321,600 of an H200's 62,914,560 bytes and 32,768,000 of an
# H100's 52,428,800.
PERSISTING_L2 = 0.625


def attributes(
    *,
    cc: tuple[int, int],
    sm_count: int,
    sm_clock_khz: int,
    memory_clock_khz: int,
    bus_width_bits: int,
    l2_nbytes: int,
    threads_per_sm: int,
    blocks_per_sm: int,
    shared_nbytes_per_sm: int,
    shared_nbytes_per_block_optin: int,
    async_engines: int,
) -> dict[int, int]:
    """Every attribute of a GPU: cudaDeviceAttr number -> value as cudaDeviceGetAttribute answers."""
    known = COMMON | {
        13: sm_clock_khz,
        16: sm_count,
        36: memory_clock_khz,
        37: bus_width_bits,
        38: l2_nbytes,
        39: threads_per_sm,
        40: async_engines,
        75: cc[0],
        76: cc[1],
        81: shared_nbytes_per_sm,
        97: shared_nbytes_per_block_optin,
        106: blocks_per_sm,
        108: int(l2_nbytes * PERSISTING_L2),
    }
    if cc < (9, 0):
        known |= dict.fromkeys(SINCE_HOPPER, 0) | {126: 1}
    return known
