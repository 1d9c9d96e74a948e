"""The faults of the emulated machine and their instants: `--fault` and `--faults`.

Lives here: a class for each kind of fault (`kinds`), the grammar of their texts (`grammar`), files of them (`files`),
whether a run has what they name (`checking`), and what they do to GPUs, hosts and links (`effects`).
Comes in: texts of the command line or of a TOML file; the servers of the run and its network.
Goes out: faults, each with its instants; paces of GPUs and hosts; capacities of links; or a FaultError.
May import: emu.contract, netsim, profiles, errors, wording.
"""

from phantora_async.faults.checking import check_deaths, given_faults
from phantora_async.faults.effects import dead_gpus, paces_of, slow_loaders
from phantora_async.faults.files import read_faults
from phantora_async.faults.grammar import FORMS, parse
from phantora_async.faults.kinds import (
    Death,
    EccRetry,
    Fault,
    FaultError,
    FlappingLink,
    JitteryHost,
    SlowGpu,
    SlowHost,
    SlowLink,
    SlowLoader,
    begin_ns,
)

__all__ = [
    "FORMS",
    "Death",
    "EccRetry",
    "Fault",
    "FaultError",
    "FlappingLink",
    "JitteryHost",
    "SlowGpu",
    "SlowHost",
    "SlowLink",
    "SlowLoader",
    "begin_ns",
    "check_deaths",
    "dead_gpus",
    "given_faults",
    "paces_of",
    "parse",
    "read_faults",
    "slow_loaders",
]
