"""Servers on other machines: how their processes reach the coordinator over TCP, and how they are told what to do.

Lives here: what the run's token makes of a connection (`keys`, `sealed`), and what it carries (`wire`); the port where
the coordinator lets connections in (`port`), and how another machine reaches it (`reach`); the machines that have
joined the run (`machines`), and what threads of processes there do (`remote_processes`). The other side is
`phantora_async.launch.joining`.
Comes in: TCP connections.
Goes out: streams of ranks, to the coordinator; messages of forkers, to the session.
May import: emu.contract, entrance, errors, ingest, liveness.
"""
