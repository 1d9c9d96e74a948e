"""Going ahead of what all ranks have said, and leaving early what is certain.

Lives here: the simulation without hosts whose next fact is missing (speculation), answers that are certain before
virtual time comes to their question (foresight), and when a run may go ahead (policy).
Comes in: hosts, the event queue, the rollback log.
Goes out: global virtual time; answers, through ``output``.
May import: emu.contract, entities and the modules of ``virtual_time`` that it names.
"""
