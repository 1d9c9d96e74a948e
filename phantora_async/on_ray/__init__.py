"""The machines of a run as actors of a Ray cluster: `phantora-async run --on ray`.

Comes in: the run's servers, the address of a cluster. Goes out: machines that join (``phantora_async.remote``), one for
each actor, and why one was lost. May import: errors, remote.

Ray runs in a process of its own (``python -m phantora_async.on_ray``), because it takes signals and starts threads.
"""
