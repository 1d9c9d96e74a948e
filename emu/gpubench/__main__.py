"""The server: `python -m emu.gpubench`. One request a line on stdin, one answer a line on stdout, both JSON objects.

  {"do": "about"}                         -> {"about": {...}} or {"error": why there is no GPU}
  {"do": "find", "op", "sizes", "name", "grid", "from": N, "count": N}
                                          -> {"tried": [{"call", "kernels"} or {"call", "error"}], "more": bool}
  {"do": "try", "works": [WORK ...]}      -> {"events": [...]}: a trace in which each was executed once
  {"do": "time", "works": [WORK ...], "states": [...], "beside": {"blocks", "gb_per_s"}}
                                          -> {"times": [{STATE: [kernels of an execution, ...]} or {"error"}, ...]}

WORK is {"call": ...} (operators.prepare_call) or {"kind": ..., "fields": ...} (library_calls). Kernels are in order,
each with name, grid, block, us. A request that fails as a whole is answered {"error": ...}.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any, TextIO

from ..contract.process_setup import prctl

_PR_SET_PDEATHSIG = 1
_TROUBLE: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    NotImplementedError,
    AttributeError,
    AssertionError,
)
"""The errors that torch raises for arguments that do not fit. Running out of memory is a RuntimeError."""


class Server:
    def __init__(self) -> None:
        import torch

        from . import candidates, library_calls, operators, resident, timing

        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        torch.cuda.set_device(0)
        torch.manual_seed(0)
        self._torch: Any = torch
        self._candidates, self._timing, self._operators = candidates, timing, operators
        self._unmeasurable: type[Exception] = operators.Unmeasurable
        self._library, self._resident = library_calls, resident
        self._last_calls: tuple[Any, list[dict[str, Any]]] = None, []
        self._timer: timing.Timer | None = None
        self._residents: dict[str, resident.Resident | str] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        handlers = {"about": self._about, "find": self._find, "try": self._try, "time": self._time}
        return handlers[request["do"]](request)

    def _about(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"about": self._timing.about()}

    def _prepare(self, work: dict[str, Any]) -> Any:
        if "call" in work:
            return self._operators.prepare_call(work["call"])
        return self._library.prepare_library(work["kind"], work["fields"])

    def _find(self, request: dict[str, Any]) -> dict[str, Any]:
        calls = self._calls(request["op"], request["sizes"], request["name"], request["grid"])
        first, count = request["from"], request["count"]
        tried: list[dict[str, Any]] = []
        with self._timing.Recording() as recording:
            for number, call in enumerate(calls[first : first + count]):
                tried.append({"call": call})
                if error := self._run_once(recording, str(number), {"call": call}):
                    tried[-1]["error"] = error
        for label, kernels in self._timing.by_label(recording.events()).items():
            tried[int(label)]["kernels"] = kernels
        return {"tried": tried, "more": first + count < len(calls)}

    def _calls(self, *of: Any) -> list[dict[str, Any]]:
        """Returns the candidates, which are asked for a dozen at a time: making those of a list of tensors takes
        seconds.
        """
        if self._last_calls[0] != of:
            self._last_calls = of, self._candidates.candidates(*of)
        return self._last_calls[1]

    def _run_once(self, recording: Any, label: str, work: dict[str, Any]) -> str:
        """Runs a piece of work once. Returns why it cannot be run; empty if it was."""
        try:
            recording.run(label, self._prepare(work))
            self._torch.cuda.synchronize()
        except (*_TROUBLE, self._unmeasurable) as error:
            return _first_line(error)
        finally:
            self._clean()
        return ""

    def _try(self, request: dict[str, Any]) -> dict[str, Any]:
        errors = {}
        with self._timing.Recording(shapes=True) as recording:
            for number, work in enumerate(request["works"]):
                if error := self._run_once(recording, str(number), work):
                    errors[str(number)] = error
        return {"events": recording.events(), "errors": errors}

    def _time(self, request: dict[str, Any]) -> dict[str, Any]:
        timer = self._timer = self._timer or self._timing.Timer()
        times: list[dict[str, Any]] = [{} for _ in request["works"]]
        beside = self._beside(request.get("beside")) if "beside" in request["states"] else None
        with self._timing.Recording() as recording:
            for number, work in enumerate(request["works"]):
                try:
                    prepared = self._prepare(work)
                    timer.measure(recording, str(number), prepared, request["states"], beside)
                except (*_TROUBLE, self._unmeasurable) as error:
                    times[number]["error"] = _first_line(error)
                finally:
                    prepared = None
                    self._clean()
        for label, kernels in self._timing.by_label(recording.events()).items():
            place, state, _ = label.split()
            times[int(place)].setdefault(state, []).append(kernels)
        return {"times": times}

    def _beside(self, what: dict[str, Any] | None) -> Any:
        """Returns the kernel that runs beside the work; None if there can be no such kernel here."""
        if what is None:
            return None
        key = json.dumps(what, sort_keys=True)
        if key not in self._residents:
            try:
                self._residents[key] = self._resident.Resident(what)
            except self._unmeasurable as error:
                self._residents[key] = str(error)
                print(error, file=sys.stderr, flush=True)
        found = self._residents[key]
        return None if isinstance(found, str) else found

    def _clean(self) -> None:
        gc.collect(0)
        if self._torch.cuda.memory_reserved() > 0.6 * self._torch.cuda.get_device_properties(0).total_memory:
            self._torch.cuda.empty_cache()


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


def main() -> None:
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # also in the midst of work that does not end
    answers: TextIO = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print
    server: Server | None = None
    trouble = ""
    try:
        server = Server()
    except (ImportError, RuntimeError) as error:
        trouble = str(error).splitlines()[0]
    for line in sys.stdin:
        try:
            answer = {"error": trouble} if server is None else server.answer(json.loads(line))
        except Exception as error:  # whatever it is, the parent hears of it
            answer = {"error": _first_line(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
