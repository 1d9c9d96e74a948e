"""Records of ranks become facts of virtual time.

Lives here: the connection of a rank (channel), the dispatch of its records (fact_builder), and what is answered
without virtual time: communicators, matching of collective calls, exchange of small data, kernel costs. Also
back-pressure and call sites.
Comes in: bytes from the ranks' sockets.
Goes out: facts for ``virtual_time.Timeline.feed``, encoded answers for ranks, ``RunFailure`` for calls that do not
match.
May import: emu.contract, profiles, errors, wording, virtual_time.
"""
