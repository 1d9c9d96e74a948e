"""What ranks tell each other beside their GPUs: stores, gloo, objects, errors that all agree on, threads."""

import contextlib
import datetime
import io
import tempfile
import threading

import torch
import torch.distributed as dist
from cases import case, device, main, new_groups, ones, rank, world

MINUTE = datetime.timedelta(minutes=1)


def gloo(ranks=None):
    return dist.new_group(ranks, backend="gloo")


@case(("all_reduce",), ("broadcast",), ("barrier",), ("gather",), ("scatter",), ("all_gather",), ("reduce",))
def on_the_host(name):
    group, x = gloo(), torch.ones(4)
    parts = [torch.empty(4) for _ in range(world)]
    match name:
        case "all_reduce":
            dist.all_reduce(x, group=group)
        case "broadcast":
            dist.broadcast(x, 1, group=group)
        case "barrier":
            dist.barrier(group=group)
        case "gather":
            dist.gather(x, parts if rank == 0 else None, group=group)
        case "scatter":
            dist.scatter(x, parts if rank == 0 else None, group=group)
        case "all_gather":
            dist.all_gather(parts, x, group=group)
        case "reduce":
            dist.reduce(x, 0, group=group)


@case((1,), (5,))
def on_both(times):
    group = gloo()
    for _ in range(times):
        dist.all_reduce(ones())
        dist.all_reduce(torch.ones(2), group=group)


@case()
def host_before_gpu_and_after():
    group = gloo()
    if rank % 2:
        dist.all_reduce(ones())
        dist.barrier(group=group)
    else:
        work = dist.all_reduce(ones(), async_op=True)
        dist.barrier(group=group)
        work.wait()


@case()
def messages_on_the_host():
    group = gloo()
    if rank == 0:
        for one in range(1, world):
            dist.recv(torch.ones(2), one, group=group)
    else:
        dist.send(torch.ones(2), 0, group=group)


@case()
def ring_on_the_host():
    group = gloo()
    works = [dist.isend(torch.ones(2), (rank + 1) % world, group), dist.irecv(torch.ones(2), (rank - 1) % world, group)]
    for work in works:
        work.wait()


@case()
def from_anybody():
    group = gloo()
    if rank == 0:
        for _ in range(world - 1):
            dist.recv(torch.ones(2), group=group)
    else:
        dist.send(torch.ones(2), 0, group=group)


@case()
def told_after_the_gpu():
    """Rank 1 waits for its GPU and then tells rank 0, which has sent already."""
    group = gloo()
    dist.all_reduce(ones())
    if rank == 0:
        dist.send(ones(), 1)
        dist.recv(torch.ones(1), 1, group=group)
    elif rank == 1:
        dist.recv(ones(), 0)
        torch.cuda.synchronize()
        dist.send(torch.ones(1), 0, group=group)


@case()
def watched_barrier():
    dist.monitored_barrier(gloo(), timeout=MINUTE)


@case()
def watched_barrier_after_work():
    group = gloo()
    dist.all_reduce(ones())
    if rank == 1:
        torch.cuda.synchronize()
    dist.monitored_barrier(group, timeout=MINUTE, wait_all_ranks=True)


@case((0,), (3,))
def all_gather_object(size):
    dist.all_gather_object([None] * world, {"rank": rank, "list": list(range(size * rank))})


@case()
def gather_object():
    dist.gather_object("x" * (rank + 1), [None] * world if rank == 0 else None)


@case()
def broadcast_object():
    dist.broadcast_object_list([{"a": list(range(100))} if rank == 0 else None])


@case()
def scatter_object():
    dist.scatter_object_list([None], list(range(world)) if rank == 0 else None)


@case()
def objects_on_the_host():
    dist.all_gather_object([None] * world, rank, group=gloo())


def store():
    return dist.distributed_c10d._get_default_store()


@case()
def a_key_of_the_store():
    if rank == 0:
        store().set("first", "1")
    else:
        store().wait(["first"])


@case()
def a_key_after_the_gpu():
    dist.all_reduce(ones())
    torch.cuda.synchronize()
    if rank == 1:
        store().set("after the GPU", "1")
    store().get("after the GPU")


@case()
def a_counter_of_the_store():
    if store().add("counted", 1) == world:
        store().set("all counted", "1")
    store().wait(["all counted"])


@case()
def asked_in_a_loop():
    if rank == 0:
        store().set("asked", "1")
    while not store().check(["asked"]):
        pass


@case()
def keys_under_a_prefix():
    part = dist.PrefixStore(f"half {rank // 2}", store())
    if rank % 2 == 0:
        part.set("key", str(rank))
    part.wait(["key"])


@case()
def compared_and_set():
    store().compare_set("lock", "", str(rank))
    store().get("lock")


@case()
def a_deleted_key():
    if rank == 0:
        store().set("deleted", "1")
        store().delete_key("deleted")
        store().set("has been deleted", "1")
    store().wait(["has been deleted"])


@case()
def all_agree_on_a_failure():
    try:
        if rank == 2:
            raise ValueError("one failed")
        failed = ones(1) * 0
    except ValueError:
        failed = ones(1)
    dist.all_reduce(failed)
    if failed.item():
        dist.barrier()


@case()
def all_catch_an_error():
    with contextlib.suppress(ValueError, RuntimeError):
        dist.all_gather([ones(4)], ones(8), group=dist.group.WORLD)
    dist.all_reduce(ones())


@case()
def all_catch_lack_of_memory():
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    dist.all_reduce(ones())


@case()
def one_catches_lack_of_memory():
    if rank == 1:
        try:
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
    dist.all_reduce(ones())


@case()
def stops_when_one_says_so():
    for step in range(10):
        stop = ones(1) * int(rank == 1 and step == 3)
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop.item():
            break
    dist.barrier()


@case()
def the_most_batches_of_all():
    most = torch.tensor([rank + 2], device=device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    for _ in range(int(most.item())):
        dist.all_reduce(ones())


@case()
def the_least_batches_of_all():
    least = torch.tensor([rank + 2], device=device)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    for _ in range(int(least.item())):
        dist.all_reduce(ones())


@case()
def one_rank_works_alone():
    if rank == 0:
        x = ones(1 << 16)
        for _ in range(50):
            x = x * 2
        torch.cuda.synchronize()
    dist.barrier()


@case()
def one_rank_writes_a_file():
    dist.all_reduce(ones())
    if rank == 0:
        with tempfile.TemporaryFile() as file:
            torch.save({"x": ones().cpu()}, file)
    dist.barrier()


@case()
def one_rank_reads_its_gpu():
    x = ones()
    dist.all_reduce(x)
    if rank == 0:
        x.sum().item()
    dist.all_reduce(x)


@case()
def asked_until_complete():
    work = dist.all_reduce(ones(), async_op=True)
    while not work.is_completed():
        pass


@case()
def an_event_before_a_collective():
    event, stream = torch.cuda.Event(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = ones() * 2
        event.record()
    torch.cuda.current_stream().wait_event(event)
    dist.all_reduce(x)


@case()
def a_collective_beside_work():
    work = dist.all_reduce(ones(1 << 16), async_op=True)
    y = ones(1 << 10)
    for _ in range(20):
        y = y * 2
    work.wait()


@case((True,), (False,))
def a_collective_in_a_graph(twice):
    group, x = dist.new_group(), ones()
    dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x, group=group)
    for _ in range(1 + twice):
        graph.replay()
    dist.all_reduce(x, group=group)


@case()
def a_graph_on_some_ranks():
    """The others call the collective as usual."""
    group, x = dist.new_group(), ones()
    dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    if rank % 2:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            dist.all_reduce(x, group=group)
        graph.replay()
    else:
        dist.all_reduce(x, group=group)


@case()
def a_thread_of_its_own_group():
    group = dist.new_group()
    dist.all_reduce(ones(), group=group)

    def beside():
        torch.cuda.set_device(device)
        for _ in range(3):
            dist.all_reduce(ones(), group=group)

    thread = threading.Thread(target=beside)
    thread.start()
    thread.join()
    dist.all_reduce(ones())


@case()
def a_thread_on_the_host():
    group = gloo()
    thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(2), group=group))
    thread.start()
    dist.all_reduce(ones())
    thread.join()


@case()
def a_group_of_some_ranks_on_the_host():
    group = gloo([0, 2])
    if rank in (0, 2):
        dist.barrier(group=group)
    dist.barrier()


@case()
def halves_on_host_and_gpu():
    group = new_groups(range(world // 2), range(world // 2, world), backend="cpu:gloo,cuda:nccl")
    dist.all_reduce(torch.ones(2), group=group)
    dist.all_reduce(ones(), group=group)


@case()
def groups_of_which_a_rank_makes_its_own():
    """With local synchronization only members make a group. Not one of NCCL: PyTorch 2.15 splits it off the world's."""
    if rank < 2:
        group = dist.new_group([0, 1], backend="gloo", use_local_synchronization=True)
        dist.all_reduce(torch.ones(2), group=group)
    dist.barrier()


@case()
def a_buffer_of_bytes():
    content = io.BytesIO()
    torch.save(torch.ones(3), content)
    size = torch.tensor([content.tell()], device=device)
    dist.broadcast(size, 0)
    data = torch.zeros(int(size.item()), dtype=torch.uint8, device=device)
    if rank == 0:
        data.copy_(torch.frombuffer(bytearray(content.getvalue()), dtype=torch.uint8))
    dist.broadcast(data, 0)


if __name__ == "__main__":
    main()
