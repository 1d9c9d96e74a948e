"""torchrun's options on the command line of `run`: those that mean nothing here are taken out and named."""

from __future__ import annotations

from dataclasses import dataclass

from phantora_async.errors import UsageError

_ONE_NETWORK = "all servers of a run find each other"
_LOGS = "logs are in the run directory (--run-dir), and --show-ranks says whose output is shown"
_ITSELF = "ranks are forked here, and not watched by an agent"
_NOT_PYTHON = "what is no Python script, and programs that start ranks: --launcher -- COMMAND"


@dataclass(frozen=True, slots=True)
class _Option:
    why: str
    values: int = 1
    refused: bool = False


_RESTARTS = _Option("a rank that fails ends the run; torchrun starts it again: --launcher -- torchrun ...")
_KNOWN: dict[str, _Option] = {
    "--standalone": _Option(_ONE_NETWORK, values=0),
    **dict.fromkeys(
        (
            "--rdzv-backend",
            "--rdzv-endpoint",
            "--rdzv-id",
            "--rdzv-conf",
            "--master-addr",
            "--master-port",
            "--local-addr",
            "--node-rank",
        ),
        _Option(_ONE_NETWORK),
    ),
    **dict.fromkeys(
        ("--log-dir", "-r", "--redirects", "-t", "--tee", "--local-ranks-filter", "--logs-specs"), _Option(_LOGS)
    ),
    **dict.fromkeys(
        (
            "--start-method",
            "--monitor-interval",
            "--role",
            "--event-log-handler",
            "--signals-to-handle",
            "--numa-binding",
        ),
        _Option(_ITSELF),
    ),
    "--virtual-local-rank": _Option(_ITSELF, values=0),
    "--max-restarts": _RESTARTS,
    "--no-python": _Option(_NOT_PYTHON, values=0, refused=True),
    "--run-path": _Option("the script is run as it is: name it without --run-path", values=0, refused=True),
}
_ALL_GPUS = ("gpu", "auto")


class TorchrunOptions:
    """Takes them from the words of a command line."""

    def __init__(self) -> None:
        self._ignored: dict[str, list[str]] = {}

    def take(self, words: list[str]) -> bool:
        """Removes the first word with its value, if it is such an option. torchrun writes underscores where it has
        hyphens, too. Raises UsageError for one that asks for something that is not done.
        """
        flag, equals, value = words[0].partition("=")
        flag = flag.replace("_", "-")
        value = value if equals else words[1] if len(words) > 1 else ""
        if flag == "--nproc-per-node" and value in _ALL_GPUS:  # the default
            del words[: 1 if equals else 2]
            return True
        if flag == "--nnodes" and ":" in value:
            raise UsageError(
                f"--nnodes {value}: the number of servers cannot change during a run",
                f"--nnodes {value.split(':')[-1]}",
            )
        option = _KNOWN.get(flag)
        if option is None:
            return False
        if option.refused:
            raise UsageError(f"{flag}, an option of torchrun, has no meaning here", option.why)
        if option.values and not equals and len(words) < 2:
            raise UsageError(f"{flag}: a value is missing", "try: phantora-async run --help")
        del words[: 1 if equals else 1 + option.values]
        if option is not _RESTARTS or value != "0":
            self._ignored.setdefault(option.why, []).append(flag)
        return True

    def remarks(self) -> list[str]:
        """One for each reason why options have no effect."""
        return [f"{', '.join(flags)} of torchrun: no effect; {why}" for why, flags in self._ignored.items()]
