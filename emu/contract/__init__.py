"""The contracts on which the processes of a run agree: each is defined once, in this package.

Lives here: the records between a rank and the coordinator (`records.def`, read by `records_definition` and built into
classes by `records`), the cost signature (`signature.def`, compiled by the hook library and read by
`profiles.signature`), the description of the job that the forker is sent (`job`), the messages of the control socket
(`messages`), how a rank is asked for its stacks (`stack_request`), and what both the command and emulated servers need
to know of their isolation, of Linux, of this installation and of other users (`isolation`, `process_setup`,
`installed`, `ownership`).
Comes in: bytes of a record, JSON of a message.
Goes out: the same as named fields, and back.
May import: `emu.formats.c_lists` and the standard library, because it also runs in another environment's interpreter.
This is the only part of `emu` that `phantora_async` may import.
"""
