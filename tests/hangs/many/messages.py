"""Messages between ranks: batches, rings, pipelines, in groups, graphs and threads."""

import threading

import torch
import torch.distributed as dist
from cases import case, device, main, new_groups, ones, rank, world
from torch.distributed import P2POp

after, before = (rank + 1) % world, (rank - 1) % world


def batch(*operations, wait=True):
    works = dist.batch_isend_irecv(list(operations))
    if wait:
        for work in works:
            work.wait()
    return works


def send(to, group=None, x=None):
    return P2POp(dist.isend, ones() if x is None else x, to, group)


def receive(come_from, group=None):
    return P2POp(dist.irecv, ones(), come_from, group)


@case((0,), (1,))
def ring(way):
    """The calls of a batch may have any order."""
    operations = [send(after), receive(before)]
    batch(*operations[:: 1 - 2 * way])


@case((1,), (2,), (3,))
def ring_over(distance):
    batch(send((rank + distance) % world), receive((rank - distance) % world))


@case((1,), (3,))
def ring_of_several_turns(turns):
    for _ in range(turns * world):
        batch(send(after), receive(before))


@case()
def ring_in_a_group():
    group = dist.new_group()
    batch(send(after, group), receive(before, group))


@case()
def ring_in_halves():
    members = list(range(world // 2)) if rank < world // 2 else list(range(world // 2, world))
    group = new_groups(range(world // 2), range(world // 2, world))
    place = members.index(rank)
    batch(send(members[(place + 1) % len(members)], group), receive(members[place - 1], group))


@case()
def both_ways():
    batch(send(after), receive(after), send(before), receive(before))


@case()
def everyone_to_everyone():
    others = [one for one in range(world) if one != rank]
    batch(*(send(one) for one in others), *(receive(one) for one in others))


@case()
def everyone_to_everyone_by_rank():
    """As a native all-to-all, and then messages on the same communicator."""
    dist.all_to_all_single(ones(8 * world), ones(8 * world))
    batch(send(after), receive(before))


@case((False,), (True,))
def a_late_receiver_after_all_to_all(batched):
    """All are connected already: a send stops no host."""
    group, other = dist.new_group(), dist.new_group()
    if batched:
        others = [one for one in range(world) if one != rank]
        batch(*(send(one, group) for one in others), *(receive(one, group) for one in others))
    else:
        dist.all_to_all_single(ones(8 * world), ones(8 * world), group=group)
    dist.all_reduce(ones(), group=other)
    if rank == 0:
        works = batch(send(1, group), wait=False)
        dist.all_reduce(ones(), group=other)
        works[0].wait()
    else:
        dist.all_reduce(ones(), group=other)
        torch.cuda.current_stream().synchronize()
        if rank == 1:
            batch(receive(0, group))


@case((1,), (4,))
def chain(count):
    for _ in range(count):
        if rank:
            dist.recv(ones(), rank - 1)
        if rank < world - 1:
            dist.send(ones(), rank + 1)


@case()
def chain_back():
    if rank < world - 1:
        dist.recv(ones(), rank + 1)
    if rank:
        dist.send(ones(), rank - 1)


@case()
def even_ranks_first():
    for turn in (0, 1):
        if rank % 2 == turn:
            dist.send(ones(), after)
        else:
            dist.recv(ones(), before)


@case()
def ping_pong():
    for _ in range(3):
        if rank == 0:
            dist.send(ones(), 1)
            dist.recv(ones(), 1)
        elif rank == 1:
            dist.recv(ones(), 0)
            dist.send(ones(), 0)


@case()
def a_root_receives_from_all():
    if rank == 0:
        for one in range(1, world):
            dist.recv(ones(), one)
    else:
        dist.send(ones(), 0)


@case()
def a_root_receives_in_one_batch():
    if rank == 0:
        batch(*(receive(one) for one in range(1, world)))
    else:
        batch(send(0))


@case()
def a_root_sends_to_all():
    if rank == 0:
        for one in range(1, world):
            dist.send(ones(), one)
    else:
        dist.recv(ones(), 0)


@case()
def a_root_sends_in_one_batch():
    if rank == 0:
        batch(*(send(one) for one in range(1, world)))
    else:
        batch(receive(0))


@case()
def handles_waited_for_late():
    works = batch(send(after), receive(before), wait=False)
    x = ones()
    for _ in range(10):
        x = x * 2
    for work in works:
        work.wait()


@case()
def two_batches_under_way():
    works = [*batch(send(after), receive(before), wait=False), *batch(send(after), receive(before), wait=False)]
    for work in works:
        work.wait()


@case()
def to_itself():
    batch(send(rank), receive(rank))


@case()
def several_to_one_peer():
    batch(send(after), send(after), receive(before), receive(before))


@case()
def of_different_sizes():
    batch(send(after, x=ones(4)), P2POp(dist.irecv, ones(4), before))
    batch(send(after, x=ones(1 << 16)), P2POp(dist.irecv, ones(1 << 16), before))


@case()
def objects():
    if rank == 0:
        dist.send_object_list([{"a": 1}, "b"], 1)
    elif rank == 1:
        dist.recv_object_list([None, None], 0)


def one_forward_one_backward(count, warm):
    """The order of calls of a pipeline of microbatches, as Megatron-LM batches them."""
    to, come_from = rank + 1 < world, rank > 0
    for _ in range(warm):
        if come_from:
            batch(receive(rank - 1))
        if to:
            batch(send(rank + 1))
    steady = count - warm
    if steady and come_from:
        batch(receive(rank - 1))
    for place in range(steady):
        if to:
            batch(send(rank + 1), receive(rank + 1))
        if come_from:
            batch(*([send(rank - 1)] + ([receive(rank - 1)] if place < steady - 1 else [])))
    for _ in range(warm):
        if to:
            batch(receive(rank + 1))
        if come_from:
            batch(send(rank - 1))


@case((4,), (8,))
def pipeline_1f1b(microbatches):
    one_forward_one_backward(microbatches, min(world - 1 - rank, microbatches))


@case((2,), (4,))
def pipeline_forward_then_backward(microbatches):
    for _ in range(microbatches):
        if rank:
            batch(receive(rank - 1))
        if rank < world - 1:
            batch(send(rank + 1))
    for _ in range(microbatches):
        if rank < world - 1:
            batch(receive(rank + 1))
        if rank:
            batch(send(rank - 1))


@case()
def interleaved_ring_of_stages():
    """The last stage sends to the first one, which works on the next part of the model."""
    for _ in range(3):
        batch(send(after), receive(before))
        batch(send(before), receive(after))


@case()
def halo_exchange():
    operations = []
    if rank > 0:
        operations += [send(rank - 1), receive(rank - 1)]
    if rank < world - 1:
        operations += [send(rank + 1), receive(rank + 1)]
    batch(*operations)


@case()
def halo_of_a_grid():
    side = world // 2
    row, column = divmod(rank, 2)
    operations = []
    for other in ((row ^ 1) * 2 + column if side > 1 else None, row * 2 + (column ^ 1)):
        if other is not None and other < world:
            operations += [send(other), receive(other)]
    batch(*operations)


@case()
def butterfly():
    step = 1
    while step < world:
        batch(send(rank ^ step), receive(rank ^ step))
        step *= 2


@case((True,), (False,))
def in_a_graph(warm):
    group = dist.new_group()
    y = ones()

    def exchange():
        batch(send(after, group), P2POp(dist.irecv, y, before, group))

    dist.all_reduce(ones(), group=group)
    if warm:
        exchange()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        exchange()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()


@case()
def in_a_graph_and_replayed_late():
    """The peers are connected as the graph is captured: its replay stops no host."""
    group, other = dist.new_group(), dist.new_group()
    dist.all_reduce(ones(), group=group)
    dist.all_reduce(ones(), group=other)
    torch.cuda.synchronize()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph):
        batch(send(after, group), receive(before, group))
    if rank == 0:
        with torch.cuda.stream(side):
            graph.replay()
        dist.all_reduce(ones(), group=other)
    else:
        dist.all_reduce(ones(), group=other)
        torch.cuda.current_stream().synchronize()
        graph.replay()
    torch.cuda.synchronize()


@case()
def on_two_streams():
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for stream in streams:
        with torch.cuda.stream(stream):
            batch(send(after), receive(before))
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)


@case()
def in_a_thread():
    """The thread's message is received after that of the main thread."""
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(ones(), group=first)
        dist.all_reduce(ones(), group=second)
    if rank == 0:

        def beside():
            torch.cuda.set_device(device)
            dist.send(ones(), 1, first)

        thread = threading.Thread(target=beside)
        thread.start()
        dist.send(ones(), 1, second)
        thread.join()
    elif rank == 1:
        dist.recv(ones(), 0, second)
        dist.recv(ones(), 0, first)


@case()
def beside_collectives():
    for _ in range(3):
        dist.all_reduce(ones())
        batch(send(after), receive(before))


@case()
def ring_attention():
    """Keys and values go around while each rank computes with those that it has."""
    group = dist.new_group()
    keys = ones(1 << 12)
    for _ in range(world - 1):
        come = torch.empty_like(keys)
        works = batch(P2POp(dist.isend, keys, after, group), P2POp(dist.irecv, come, before, group), wait=False)
        keys = keys * 2
        for work in works:
            work.wait()
        keys = come


@case()
def pairs_take_turns():
    """A tournament: in each turn all ranks have another partner."""
    for turn in range(1, world):
        batch(send(rank ^ turn), receive(rank ^ turn))


@case()
def a_skip_connection_in_the_order_of_stages():
    """Rank 0 sends to rank 2 after rank 1 has been served; rank 2 receives each message for itself."""
    if rank == 0:
        batch(send(1))
        batch(send(2))
    elif rank == 1:
        batch(receive(0))
        batch(send(2))
    elif rank == 2:
        batch(receive(1))
        batch(receive(0))


if __name__ == "__main__":
    main()
