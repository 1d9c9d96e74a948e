"""Servers on other machines: how their processes reach the coordinator over TCP, and how they are told what to do.

Lives here: what a connection begins with, and the messages (`wire`); the port where the coordinator lets connections in
that know the run's token (`port`); the machines that have joined the run (`machines`), and what threads of processes
there do (`remote_processes`). The other side is `phantora_async.launch.joining`.
Comes in: TCP connections.
Goes out: streams of ranks, to the coordinator; messages of forkers, to the session.
May import: emu.contract, errors, ingest, liveness.
"""
