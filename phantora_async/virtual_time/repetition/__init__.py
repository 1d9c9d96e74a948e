"""Short work of a host and its GPU that repeats, executed as a whole: what reading many small tensors one by
one is. PyTorch's ``all_gather_object`` reads two for each rank of the world.

Comes in: records of a rank, in which repetitions are found (`finding`).
Goes out: a ``RepeatedFact`` (`entities.repetition`), of which it is known what it takes if nothing else happens on the
GPU, and what a host does that comes to it (`rules`). Where something else may happen, its facts are executed one by
one.
May import: emu.contract, virtual_time.entities, virtual_time.event_queue, virtual_time.rollback_log.
"""
