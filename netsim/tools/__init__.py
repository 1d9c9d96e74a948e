"""Tools for people: statistics of links, flow traces, pictures, and the accuracy of collectives.

Comes in: a network that has run, or a file of flows or measurements. Goes out: tables, JSON and pictures. May import:
every other package of netsim, except ``netsim.bench``.
"""
