"""Derives the mesh of `--fold auto` from the command line and the text of the script. Nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from phantora_async.folding.request import FOLDED_NAMES
from phantora_async.folding.script_text import last_name, source_of
from phantora_async.folding.script_values import UNKNOWN, Ranks, ScriptValues

MAKES_GROUPS = frozenset(
    (
        "DeviceMesh",
        "DistributedPipeline",
        "P2POp",
        "PipelineModule",
        "PipelineStage",
        "batch_isend_irecv",
        "init_device_mesh",
        "initialize_model_parallel",
        "irecv",
        "isend",
        "new_group",
        "new_subgroups",
        "new_subgroups_by_enumeration",
        "parallelize_module",
        "recv",
        "send",
        "split_group",
    )
)
"""Calls by which ranks get other tasks than those of replicas."""
DATA_PARALLEL = frozenset(
    ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP", "fully_shard", "DataParallelStrategy")
)
"""Calls that make replicas of all ranks, unless they are given another group."""


class Underivable(Exception):
    """The mesh cannot be derived. The message says why."""


class Derived(NamedTuple):
    mesh: str
    """The mesh in the form that `--fold` takes."""
    reason: str


def derived(arguments: Sequence[str], script: str, world_size: int) -> Derived:
    """The mesh of this job. `script`: its text, "" if it is not known. Raises Underivable."""
    given = _options(arguments)
    for find in (_megatron, _torchtitan):
        if (found := find(given, world_size)) is not None:
            return found
    return _from_script(script, arguments, world_size)


def _options(arguments: Sequence[str]) -> dict[str, str]:
    """The options ``--name value`` and ``--name=value``, with `_` as `-`; the last one counts."""
    found = {}
    for at, word in enumerate(arguments):
        if word.startswith("--"):
            name, is_given, value = word[2:].partition("=")
            following = arguments[at + 1] if at + 1 < len(arguments) else ""
            found[name.replace("_", "-")] = value if is_given else "" if following.startswith("--") else following
    return found


def _size(given: Mapping[str, str], name: str) -> int:
    """The size of an axis; 1 if the option is not given."""
    text = given.get(name, "1")
    try:
        return int(text)
    except ValueError:
        raise Underivable(f"--{name} {text} is no number") from None


def _mesh(world_size: int, rest: str, axes: Sequence[tuple[str, int]], reason: str) -> Derived:
    """The mesh with these axes. `rest`: the axis that has what the others leave; axes of one rank are left out."""
    others = prod(size for name, size in axes if name != rest)
    if others < 1 or world_size % others:
        raise Underivable(f"{reason} make a mesh of {others} ranks, which does not divide {world_size}")
    sizes = [(name, world_size // others if name == rest else size) for name, size in axes]
    kept = [f"{name}={size}" for name, size in sizes if size > 1 or name == rest]
    return Derived(",".join(kept), f"{reason} say so")


def _megatron(given: Mapping[str, str], world_size: int) -> Derived | None:
    names = {name: f"{name}-model-parallel-size" for name in ("tensor", "pipeline", "expert")}
    names["context"] = "context-parallel-size"
    used = [f"--{name}" for name in names.values() if name in given]
    if not used:
        return None
    tp, pp, ep, cp = (_size(given, names[name]) for name in ("tensor", "pipeline", "expert", "context"))
    if ep > 1 and cp > 1:
        raise Underivable("Megatron's experts lie across data and context parallelism: name an axis for both")
    if "expert-tensor-parallel-size" in given and ep > 1 and _size(given, "expert-tensor-parallel-size") != tp:
        raise Underivable("--expert-tensor-parallel-size makes another mesh for experts")
    replicas = [("dp", 0), ("ep", ep), ("cp", cp), ("tp", tp)]
    axes = [*replicas[:1], ("pp", pp), *replicas[2:]] if "use-tp-pp-dp-mapping" in given else [("pp", pp), *replicas]
    if "use-tp-pp-dp-mapping" in given and ep > 1:
        raise Underivable("--use-tp-pp-dp-mapping with experts is not known")
    return _mesh(world_size, "dp", axes, f"Megatron's options {', '.join(used)}")


def _torchtitan(given: Mapping[str, str], world_size: int) -> Derived | None:
    degrees = {
        name.rpartition(".")[2].removesuffix("-degree"): name
        for name in given
        if name.startswith("parallelism.") and name.endswith("-degree")
    }
    if not degrees:
        return None
    if "expert-parallel" in degrees and _size(given, degrees["expert-parallel"]) > 1:
        raise Underivable("torchtitan's experts lie across other axes")
    sizes = {name: _size(given, option) for name, option in degrees.items()}
    axes = [
        ("pp", sizes.get("pipeline-parallel", 1)),
        ("dp_replicate", sizes.get("data-parallel-replicate", 1)),
        ("dp_shard", 0),
        ("cp", sizes.get("context-parallel", 1)),
        ("tp", sizes.get("tensor-parallel", 1)),
    ]
    used = ", ".join(f"--{option}" for option in sorted(degrees.values()))
    found = _mesh(world_size, "dp_shard", axes, f"torchtitan's options {used}")
    shard = sizes.get("data-parallel-shard", -1)
    if shard > 0 and f"dp_shard={shard}" not in found.mesh.split(","):
        raise Underivable(f"torchtitan's options {used} do not make a mesh of {world_size} ranks")
    return found


# ---- the script's text ---------------------------------------------------------------------------------------------


def _from_script(text: str, arguments: Sequence[str], world_size: int) -> Derived:
    source = source_of(text)
    if source is None:
        raise Underivable("the script's text cannot be read")
    tree = source.tree
    values = ScriptValues([source], arguments, Ranks((world_size,)))

    def known(node: ast.expr) -> Any:
        """The value, if it is the same on all ranks; None: it is not known."""
        value, depends_on = values.of(node, source)
        return None if value is UNKNOWN or depends_on else value

    meshes = list(_calls(tree, lambda name: name == "init_device_mesh"))
    if len(meshes) > 1:
        left_out = {id(node) for branch in _not_taken(tree, known) for node in ast.walk(branch)}
        meshes = [call for call in meshes if id(call) not in left_out]
    if len(meshes) == 1:
        return _device_mesh(meshes[0], world_size, known)
    if meshes:
        raise Underivable(f"the script calls init_device_mesh {len(meshes)} times")
    groups = sorted({last_name(call.func) for call in _calls(tree, lambda name: name in MAKES_GROUPS)})
    if groups:
        raise Underivable(f"the script calls {', '.join(groups)}, whose ranks its text does not tell")
    replicas = sorted({last_name(call.func) for call in _calls(tree, lambda name: name in DATA_PARALLEL)})
    if not replicas:
        raise Underivable("neither its options nor its text tell how the script divides its work")
    return Derived(f"dp={world_size}", f"the script calls {', '.join(replicas)} and makes no groups")


def _calls(tree: ast.AST, wanted: Callable[[str], bool]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and wanted(last_name(node.func)):
            yield node


def _not_taken(tree: ast.AST, known: Callable[[ast.expr], Any]) -> Iterator[ast.AST]:
    """Yields the branches that no rank takes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp) and (taken := known(node.test)) is not None:
            branch = node.orelse if taken else node.body
            yield from branch if isinstance(branch, list) else [branch]


def _device_mesh(call: ast.Call, world_size: int, known: Callable[[ast.expr], Any]) -> Derived:
    """The mesh of a call with sizes of which all but one are known, and names."""
    place = f"init_device_mesh in line {call.lineno}"
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    shape = call.args[1] if len(call.args) > 1 else given.get("mesh_shape")
    names = given.get("mesh_dim_names")
    if not isinstance(shape, ast.Tuple | ast.List) or not isinstance(names, ast.Tuple | ast.List):
        raise Underivable(f"{place} does not name its axes and their sizes in its text")
    texts = [name.value for name in names.elts if isinstance(name, ast.Constant) and isinstance(name.value, str)]
    sizes = [known(size) for size in shape.elts]
    if len(texts) != len(sizes) or len(texts) != len(names.elts):
        raise Underivable(f"{place} does not name its axes and their sizes in its text")
    if not FOLDED_NAMES.intersection(texts):
        raise Underivable(f"{place}: none of {', '.join(texts)} is known as data-parallel")
    unknown = [text for text, size in zip(texts, sizes, strict=True) if not isinstance(size, int)]
    if len(unknown) > 1:
        raise Underivable(f"{place}: the sizes of {' and '.join(unknown)} are not in its text")
    numbers = [(text, size if isinstance(size, int) else 0) for text, size in zip(texts, sizes, strict=True)]
    if unknown:
        return _mesh(world_size, unknown[0], numbers, place)
    if prod(size for _, size in numbers) != world_size:
        raise Underivable(f"{place} makes a mesh of {prod(size for _, size in numbers)} ranks, not of {world_size}")
    return Derived(",".join(f"{name}={size}" for name, size in numbers), f"{place} says so")
