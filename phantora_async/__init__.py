"""The product: command line, coordinator, virtual time, reports. Never imports torch.

Lives here: the command line (cli), what a run's options mean (config, run_spec), one run from start to end (session),
the processes that it starts (launcher), its terminal, and every error (errors). The launcher starts the forker, from
which ranks are forked. Records of ranks arrive in ``ingest`` and become facts; ``virtual_time`` executes the facts;
``coordinator`` drives both; ``liveness`` watches ranks that send nothing; ``diagnosis`` and ``report`` say what
happened.
Comes in: a command line, messages of the forker.
Goes out: the script's output, the status, the report, an exit code.
May import: emu.contract, netsim, profiles.
"""
