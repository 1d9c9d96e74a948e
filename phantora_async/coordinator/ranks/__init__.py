"""The ranks' processes as the coordinator meets them: a socket, and what goes over it.

Lives here: processes that have not said which rank they are (arrivals), whether they may be that rank (server_check),
and the connections of those that have (connections).
Comes in: connections to the run's socket; answers of virtual time.
Goes out: facts for virtual time; answers to ranks; ``ProtocolError`` for a process that cannot be the rank it says.
May import: emu.contract, entrance, errors, ingest, reasons, recording, virtual_time.
"""
