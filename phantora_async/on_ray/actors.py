"""The process that uses Ray: plans, places an actor for each machine, and watches them.

An actor runs `phantora-async join`, as a user would on that node.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from typing import IO, Any

from phantora_async.on_ray import messages
from phantora_async.on_ray.placement import MachinePlace, Node, NoRoom, places_of
from phantora_async.remote.wire import TOKEN_VARIABLE

PLACED_S = 60.0
"""The seconds that Ray may take to reserve the free resources."""
REACH_S = 10.0
ANSWER_S = 90.0
"""The seconds that Ray may take to make a runtime environment and to run a first task."""
LOOK_S = 0.5
LAST_S = 10.0
"""The seconds that actors may take to end when the run has ended."""
NOTICED_S = 25.0
"""The seconds that Ray may take to notice that a node has died whose actor does not answer."""
TEXT_NBYTES = 4000
"""The bytes that are kept of the end of `join`'s output."""
RAY_SETS = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Variables that Ray sets in actors. They describe what the actors reserve on a node, not the emulated servers."""
_PR_SET_PDEATHSIG = 1
CLIENT = "ray://"


class Failed(Exception):
    """An error with a message and a hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def main() -> int:
    """Runs the process. Standard output belongs to messages: what Ray prints goes to standard error."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = os.fdopen(0, "rb", buffering=0)
    try:
        _Run(source, out).follow()
    except Failed as error:
        out.write(messages.encode("failed", message=error.message, hint=error.hint))
    except BrokenPipeError:
        pass
    except Exception as error:
        traceback.print_exc()
        out.write(messages.encode("failed", message=f"Ray: {_first_line(error)}", hint=""))
    return 0


class _Run:
    def __init__(self, source: IO[bytes], out: IO[bytes]) -> None:
        self._source = source
        self._out = out
        self._places: list[MachinePlace] = []
        self._environment: dict[str, Any] = {}
        self._ray: Any = None
        self._group: Any = None
        self._actors: list[Any] = []
        self._nodes: list[str] = []
        """The ids of the machines' nodes."""

    def follow(self) -> None:
        """Follows the command's messages until it closes its end. Raises Failed."""
        try:
            while line := self._source.readline():
                message = messages.decode(line)
                if message["event"] == "plan":
                    self._plan(message["cluster"], message["servers"], message["machines"], message["environment"])
                elif message["event"] == "place":
                    self._watch(self._place(message["address"], message["token"], message["python"]))
                    return
        finally:
            self._end()

    def _plan(self, cluster: str, servers: list[int], machines: int | None, environment: dict[str, Any]) -> None:
        try:
            import ray
        except ImportError as error:
            raise Failed(f"--on needs Ray ({error})", "pip install 'phantora-async[ray]'") from None
        self._ray = ray
        self._environment = environment
        _reach(cluster.removeprefix(CLIENT) or os.environ.get("RAY_ADDRESS", ""))
        slow = threading.Timer(ANSWER_S, self._no_answer, [cluster or "this machine"])
        slow.daemon = True
        slow.start()
        try:
            ray.init(
                address=cluster or "auto",
                runtime_env=environment or None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, RuntimeError, ValueError, ImportError) as error:
            raise _no_cluster(cluster.removeprefix(CLIENT) or "this machine", _first_line(error)) from None
        found = ray.get(ray.remote(num_cpus=0)(_free).remote())
        slow.cancel()
        nodes = [Node(name, int(processors), int(nbytes)) for name, processors, nbytes in found]
        try:
            self._places = places_of(servers, nodes, machines)
        except NoRoom as error:
            raise Failed(f"--on: {error}", "ray status shows what is free; --machines N takes fewer nodes") from None
        self._out.write(
            messages.encode("planned", host=_own_address(cluster), servers=[place.servers for place in self._places])
        )

    def _no_answer(self, cluster: str) -> None:
        """Raises Failed if the cluster does not answer: Ray itself would wait for minutes, and may not be
        interrupted.
        """
        self._out.write(
            messages.encode(
                "failed", message=f"the Ray cluster at {cluster} has not answered in {ANSWER_S:g} s", hint=""
            )
        )
        os.kill(os.getpid(), signal.SIGKILL)

    def _place(self, address: str, token: str, python: str) -> list[Any]:
        """Starts the actors. Returns references to the results that they will return."""
        ray = self._ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        bundles = [{"CPU": place.processors, "memory": place.nbytes} for place in self._places]
        self._group = placement_group(bundles, strategy="SPREAD")
        if not self._group.wait(PLACED_S):
            raise Failed(f"Ray has not reserved {bundles} within {PLACED_S:g} s", "ray status shows what is free")
        for number, place in enumerate(self._places):
            strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=number)
            actor = (
                ray.remote(num_cpus=place.processors, memory=place.nbytes, max_restarts=0)(Machine)
                .options(scheduling_strategy=strategy)
                .remote()
            )
            self._actors.append(actor)
        actors = [(actor, number) for number, actor in enumerate(self._actors)]
        about = [self._get(actor.about.remote(), number) for actor, number in actors]
        self._nodes = [node for node, _ in about]
        self._out.write(messages.encode("placed", nodes=[ip for _, ip in about]))
        own_folder = "working_dir" in self._environment
        return [actor.join.remote(address, number, token, python, own_folder) for actor, number in actors]

    def _get(self, reference: Any, number: int) -> Any:
        """Waits for the result of a machine's actor. Raises Failed."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise Failed(f"Ray cannot start machine {number}: {_first_line(error)}") from None

    def _watch(self, references: list[Any]) -> None:
        """Watches the actors. Raises Failed if a machine has refused."""
        number_of = {reference: number for number, reference in enumerate(references)}
        left = references
        while not select.select([self._source], [], [], 0)[0]:
            if not left:
                select.select([self._source], [], [])
                return
            done, left = self._ray.wait(left, timeout=LOOK_S)
            for reference in done:
                self._ended(reference, number_of[reference])
        self._ray.wait(left, num_returns=len(left), timeout=LAST_S)

    def _ended(self, reference: Any, number: int) -> None:
        try:
            code, text = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._out.write(messages.encode("lost", machine=number, why=self._why(number, error)))
            return
        if code:
            raise Failed(f"`phantora-async join` on a node of Ray ended with exit code {code}:\n{text.strip()}")

    def _why(self, number: int, error: Exception) -> str:
        until_s = time.monotonic() + NOTICED_S
        unknown = isinstance(error, self._ray.exceptions.ActorUnavailableError)
        while self._alive(self._nodes[number]):
            if not unknown or time.monotonic() > until_s:
                break
            time.sleep(LOOK_S)
        else:
            return "Ray: the node has died"
        return f"Ray: the node is alive, the actor has ended ({_first_line(error)})"

    def _alive(self, node: str) -> bool:
        return any(one["Alive"] for one in self._ray.nodes() if one["NodeID"] == node)

    def _end(self) -> None:
        if self._ray is None or not self._ray.is_initialized():
            return
        for actor in self._actors:
            self._ray.kill(actor)
        if self._group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(self._group)
        self._ray.shutdown()


class Machine:
    """The actor: one machine of the run."""

    def about(self) -> tuple[str, str]:
        """The node's id and its address."""
        import ray

        context = ray.get_runtime_context()
        return context.get_node_id(), ray.util.get_node_ip_address()

    def join(self, address: str, number: int, token: str, python: str, own_folder: bool) -> tuple[int, str]:
        """Runs `join`. Returns its exit code, and the end of its output. `own_folder`: the script is among the files of
        Ray's runtime environment, which is the working directory.
        """
        variables = {name: value for name, value in os.environ.items() if name not in RAY_SETS}
        command = [sys.executable, "-m", "phantora_async", "join", address, "--seat", str(number)]
        if python:
            command += ["--python", python]
        if own_folder:
            command += ["--folder", os.getcwd()]
        done = subprocess.run(
            command,
            env=variables | {TOKEN_VARIABLE: token},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=_end_with_parent,
            check=False,
        )
        return done.returncode, done.stdout[-TEXT_NBYTES:].decode(errors="replace")


def _end_with_parent() -> None:
    """Ends `join` with SIGTERM when the actor's process is killed, so that the machine leaves the run in order."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free() -> list[tuple[str, float, float]]:
    """A task of the cluster: the free processors and bytes of each node. Ray has no public function for them."""
    import ray

    alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    try:
        from ray._private.state import available_resources_per_node

        free = available_resources_per_node()
    except (ImportError, AttributeError):
        free = alive
    return [(name, free[name].get("CPU", 0), free[name].get("memory", 0)) for name in alive if name in free]


def _own_address(cluster: str) -> str:
    """The address at which nodes of the cluster reach this machine."""
    if not cluster.startswith(CLIENT):
        import ray

        return str(ray.util.get_node_ip_address())
    host, _, port = cluster.removeprefix(CLIENT).rpartition(":")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host.strip("[]"), int(port)))
        return str(probe.getsockname()[0])


def _reach(address: str) -> None:
    """Tests that the address can be reached; Ray itself would try for minutes. Only HOST:PORT is tested, Ray knows
    other forms. Raises Failed.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, getattr(error, "strerror", None) or str(error)) from None


def _no_cluster(where: str, why: str) -> Failed:
    return Failed(
        f"no Ray cluster at {where}: {why}",
        "ray start --head starts one here; --on ray://HOST:PORT names one, by the port of its client server",
    )


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
