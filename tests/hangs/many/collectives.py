"""Collectives of torch.distributed: blocking, asynchronous, on other streams, in several groups."""

import torch
import torch.distributed as dist
from cases import case, main, new_groups, ones, rank, world
from torch.distributed.device_mesh import init_device_mesh


def all_gather(group, size, **options):
    return dist.all_gather([torch.empty_like(ones()) for _ in range(size)], ones(), group=group, **options)


def gather(group, size, **options):
    first = dist.get_global_rank(group, 0)
    parts = [torch.empty_like(ones()) for _ in range(size)] if rank == first else None
    return dist.gather(ones(), parts, dst=first, group=group, **options)


def scatter(group, size, **options):
    first = dist.get_global_rank(group, 0)
    return dist.scatter(ones(), [ones()] * size if rank == first else None, src=first, group=group, **options)


KINDS = {
    "all_reduce": lambda group, size, **options: dist.all_reduce(ones(), group=group, **options),
    "reduce": lambda group, size, **options: dist.reduce(
        ones(), dist.get_global_rank(group, 0), group=group, **options
    ),
    "broadcast": lambda group, size, **options: dist.broadcast(
        ones(), dist.get_global_rank(group, size - 1), group=group, **options
    ),
    "all_gather": all_gather,
    "into_tensor": lambda group, size, **options: dist.all_gather_into_tensor(
        ones(8 * size), ones(), group=group, **options
    ),
    "reduce_scatter": lambda group, size, **options: dist.reduce_scatter_tensor(
        ones(), ones(8 * size), group=group, **options
    ),
    "all_to_all": lambda group, size, **options: dist.all_to_all_single(
        ones(8 * size), ones(8 * size), group=group, **options
    ),
    "gather": gather,
    "scatter": scatter,
    "barrier": lambda group, size, **options: dist.barrier(group=group, **options),
}
NAMES = [(name,) for name in KINDS]


@case(*NAMES)
def on_all(name):
    KINDS[name](dist.group.WORLD, world)


@case(*NAMES)
def in_halves(name):
    KINDS[name](new_groups(range(world // 2), range(world // 2, world)), world // 2)


@case(*NAMES)
def waited_for_last(name):
    works = [KINDS[name](dist.group.WORLD, world, async_op=True) for _ in range(3)]
    for work in reversed(works):
        work.wait()


@case(*NAMES)
def on_a_stream_of_its_own(name):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        KINDS[name](dist.group.WORLD, world)
    torch.cuda.current_stream().wait_stream(stream)


@case(*NAMES)
def by_one_half_alone(name):
    group = new_groups(range(world // 2))
    if group is not None and rank < world // 2:
        KINDS[name](group, world // 2)


@case(*NAMES)
def after_uneven_work(name):
    x = ones(1 << 10)
    for _ in range(rank * 20):
        x = x * 2
    KINDS[name](dist.group.WORLD, world)


@case(*NAMES)
def two_groups_in_one_order(name):
    first, second = dist.new_group(), dist.new_group()
    for group in (first, second, second, first):
        KINDS[name](group, world)


@case()
def coalesced():
    with dist._coalescing_manager(async_ops=True) as manager:
        for _ in range(4):
            dist.all_reduce(ones())
    manager.wait()


@case()
def rows_and_columns():
    side = world // 2
    row = new_groups(*(range(one * 2, one * 2 + 2) for one in range(side)))
    column = new_groups(*(range(one, world, 2) for one in range(2)))
    for group in (row, column, row, column):
        dist.all_reduce(ones(), group=group)


@case()
def pairs_in_different_orders():
    """Ranks that share no group may call their groups in any order."""
    mine, other = new_groups(*([one, one ^ 1] for one in range(0, world, 2))), dist.new_group()
    if rank < 2:
        dist.all_reduce(ones(), group=mine)
        dist.all_reduce(ones(), group=mine)
    else:
        for _ in range(5):
            dist.all_reduce(ones(), group=mine)
    dist.all_reduce(ones(), group=other)


@case()
def unequal_all_to_all():
    counts = [one + 1 for one in range(world)]
    dist.all_to_all_single(ones((rank + 1) * world), ones(sum(counts)), [rank + 1] * world, counts)


@case()
def all_to_all_to_some():
    """Each rank sends to the next rank only: nothing is sent where a part is empty."""
    send = [8 if one == (rank + 1) % world else 0 for one in range(world)]
    receive = [8 if one == (rank - 1) % world else 0 for one in range(world)]
    dist.all_to_all_single(ones(), ones(), receive, send)


@case()
def a_list_to_all():
    dist.all_to_all([ones() for _ in range(world)], [ones() for _ in range(world)])


@case()
def made_and_ended_again():
    for _ in range(3):
        group = dist.new_group()
        dist.all_reduce(ones(), group=group)
        dist.destroy_process_group(group)


@case()
def functional():
    import torch.distributed._functional_collectives as functional

    y = functional.all_reduce(ones(), "sum", dist.group.WORLD)
    functional.all_gather_tensor(y, 0, dist.group.WORLD).sum()


@case()
def by_a_device_mesh():
    mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("dp", "tp"))
    for name in ("tp", "dp", "tp"):
        dist.all_reduce(ones(), group=mesh[name].get_group())


if __name__ == "__main__":
    main()
