"""torch.distributed in a folded run: most ranks have no process, and those that have one play them.

Lives here: who plays whom (`ranks`); what the store answers in place of ranks that never ask it (`stores`); members of
groups, for the coordinator (`groups`); which of NCCL's messages are parts of gathers and scatters (`messages`);
whether a script fails because of other ranks' gathered objects (`gathered`); gloo, which would connect to every member
(`gloo`, with `work`).
Comes in: the job's folding; calls of torch.distributed.
Goes out: the same with true ranks and sizes; `phantora_comm_members`, `phantora_split_members` and
`phantora_messages_of` of the hook library.
May import: contract, interpreter.hook_library, interpreter.code_owner, private.
"""
