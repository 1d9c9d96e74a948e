"""What Triton programs store of sums too long to be computed is the same by bounds as from all their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")

from emu.compiled import long_sums  # noqa: E402
from emu.compiled.evaluation import Evaluator  # noqa: E402
from emu.compiled.integer_stores import NotEvaluated, TooLong  # noqa: E402
from emu.compiled.long_sums import stores_by_bounds, sums_along_one_axis  # noqa: E402
from emu.compiled.places import Places  # noqa: E402
from emu.compiled.steps import MemoryReader  # noqa: E402
from emu.formats.ttir import read_program  # noqa: E402

if TYPE_CHECKING:
    from torch import Tensor

IN, SOME, ALL = 1 << 20, 1 << 30, 1 << 31
TILE, TILES = 16, 6
"""Rows and columns of a tile of the mask, and tiles in a row of tiles."""
LENGTH, PAIRS = TILE * TILES, TILE * TILE


def mask_counts(lanes: int, length: int, visible: list[str], added: str = "%next = arith.addi %sum, %one") -> Any:
    """Returns a program that counts the visible pairs of each tile, in turns of `length` pairs, for `lanes` tiles at
    once, and stores whether they are some and whether they are all. `visible`: computes %see of the tokens %q and %k,
    and of what is at %in for each of them, %doc_q and %doc_k.
    """
    both, row, column = f"tensor<{lanes}x{length}x", f"tensor<1x{length}x", f"tensor<{lanes}x1x"
    lines = f"""
tt.func public @f(%in: !tt.ptr<i32>, %some: !tt.ptr<i32>, %all: !tt.ptr<i32>) attributes {{noinline = false}} {{
%zero = arith.constant dense<0> : {both}i64>
%none = arith.constant dense<0> : {column}i64>
%pairs = arith.constant dense<{PAIRS}> : {column}i64>
%end = arith.constant dense<{PAIRS}> : {row}i32>
%other = arith.constant dense<-1> : {both}i32>
%tile_c = arith.constant dense<{TILE}> : {column}i32>
%tile_r = arith.constant dense<{TILE}> : {row}i32>
%tiles = arith.constant dense<{TILES}> : {column}i32>
%limit = arith.constant dense<{TILES * TILES}> : {column}i32>
%lanes = arith.constant {lanes} : i32
%c0 = arith.constant 0 : i32
%c_end = arith.constant {PAIRS} : i32
%c_step = arith.constant {length} : i32
%pid = tt.get_program_id x : i32
%offset = arith.muli %pid, %lanes : i32
%x0 = tt.make_range {{end = {lanes} : i32, start = 0 : i32}} : tensor<{lanes}xi32>
%x1 = tt.expand_dims %x0 {{axis = 1 : i32}} : tensor<{lanes}xi32> -> {column}i32>
%x2 = tt.splat %offset : i32 -> {column}i32>
%x = arith.addi %x2, %x1 : {column}i32>
%inside = arith.cmpi slt, %x, %limit : {column}i32>
%r0 = tt.make_range {{end = {length} : i32, start = 0 : i32}} : tensor<{length}xi32>
%r1 = tt.expand_dims %r0 {{axis = 0 : i32}} : tensor<{length}xi32> -> {row}i32>
%tile_q = arith.divsi %x, %tiles : {column}i32>
%tile_k = arith.remsi %x, %tiles : {column}i32>
%first_q = arith.muli %tile_q, %tile_c : {column}i32>
%first_k = arith.muli %tile_k, %tile_c : {column}i32>
%counted = scf.for %r2 = %c0 to %c_end step %c_step iter_args(%sum = %zero) -> ({both}i64>)  : i32 {{
%r3 = tt.splat %r2 : i32 -> {row}i32>
%r = arith.addi %r3, %r1 : {row}i32>
%in_r = arith.cmpi slt, %r, %end : {row}i32>
%in_r2 = tt.broadcast %in_r : {row}i1> -> {both}i1>
%in_x2 = tt.broadcast %inside : {column}i1> -> {both}i1>
%mask = arith.andi %in_r2, %in_x2 : {both}i1>
%at_q = arith.divsi %r, %tile_r : {row}i32>
%at_k = arith.remsi %r, %tile_r : {row}i32>
%q1 = tt.broadcast %first_q : {column}i32> -> {both}i32>
%k1 = tt.broadcast %first_k : {column}i32> -> {both}i32>
%q2 = tt.broadcast %at_q : {row}i32> -> {both}i32>
%k2 = tt.broadcast %at_k : {row}i32> -> {both}i32>
%q = arith.addi %q1, %q2 : {both}i32>
%k = arith.addi %k1, %k2 : {both}i32>
%base = tt.splat %in : !tt.ptr<i32> -> {both}!tt.ptr<i32>>
%pointer_q = tt.addptr %base, %q : {both}!tt.ptr<i32>>, {both}i32>
%pointer_k = tt.addptr %base, %k : {both}!tt.ptr<i32>>, {both}i32>
%doc_q = tt.load %pointer_q, %mask, %other : {both}!tt.ptr<i32>>
%doc_k = tt.load %pointer_k, %mask, %other : {both}!tt.ptr<i32>>
""".strip().splitlines()
    lines += [line.replace("i32;", f": {both}i32>").replace("i1;", f": {both}i1>") for line in visible]
    lines += f"""
%one = arith.extui %see : {both}i1> to {both}i64>
{added} : {both}i64>
%kept = arith.select %mask, %next, %sum : {both}i1>, {both}i64>
scf.yield %kept : {both}i64>
}}
%total = "tt.reduce"(%counted) <{{axis = 1 : i32}}> ({{
^bb0(%a: i64, %b: i64):
%c = arith.addi %a, %b : i64
tt.reduce.return %c : i64
}}) : ({both}i64>) -> tensor<{lanes}xi64>
%sums = tt.expand_dims %total {{axis = 1 : i32}} : tensor<{lanes}xi64> -> {column}i64>
%any = arith.cmpi sgt, %sums, %none : {column}i64>
%few = arith.cmpi slt, %sums, %pairs : {column}i64>
%both = arith.andi %any, %few : {column}i1>
%full = arith.cmpi eq, %sums, %pairs : {column}i64>
%both_i = arith.extui %both : {column}i1> to {column}i32>
%full_i = arith.extui %full : {column}i1> to {column}i32>
%some1 = tt.splat %some : !tt.ptr<i32> -> {column}!tt.ptr<i32>>
%some2 = tt.addptr %some1, %x : {column}!tt.ptr<i32>>, {column}i32>
tt.store %some2, %both_i, %inside : {column}!tt.ptr<i32>>
%all1 = tt.splat %all : !tt.ptr<i32> -> {column}!tt.ptr<i32>>
%all2 = tt.addptr %all1, %x : {column}!tt.ptr<i32>>, {column}i32>
tt.store %all2, %full_i, %inside : {column}!tt.ptr<i32>>
tt.return
}}
""".strip().splitlines()
    return read_program("|".join(("module {", *lines, "}")))


DOCUMENT = [
    "%causal = arith.cmpi sge, %q, %k i32;",
    "%same = arith.cmpi eq, %doc_q, %doc_k i32;",
    "%see = arith.andi %causal, %same i1;",
]
WINDOW = [
    "%tile_b = arith.constant dense<20> i32;",
    "%causal = arith.cmpi sge, %q, %k i32;",
    "%way = arith.subi %q, %k i32;",
    "%near = arith.cmpi slt, %way, %tile_b i32;",
    "%see = arith.andi %causal, %near i1;",
]
EITHER = [
    "%past = arith.cmpi sgt, %k, %q i32;",
    "%other_one = arith.cmpi ne, %doc_q, %doc_k i32;",
    "%hidden = arith.ori %past, %other_one i1;",
    "%first = arith.cmpi ult, %k, %doc_q i32;",
    "%different = arith.xori %hidden, %first i1;",
    "%larger = arith.maxsi %doc_q, %doc_k i32;",
    "%product = arith.muli %larger, %q i32;",
    "%enough = arith.cmpi sle, %k, %product i32;",
    "%see = arith.select %hidden, %different, %enough : {both}i1>, {both}i1>",
]

IN_MEMORY = [
    "%length = arith.constant dense<96> i32;",
    "%zero8 = arith.constant dense<0> : {both}i8>",
    "%row = arith.muli %q, %length i32;",
    "%place = arith.addi %row, %k i32;",
    "%bits = tt.bitcast %base : {both}!tt.ptr<i32>> -> {both}!tt.ptr<i8>>",
    "%pointer = tt.addptr %bits, %place : {both}!tt.ptr<i8>>, {both}i32>",
    "%bit = tt.load %pointer, %mask, %zero8 : {both}!tt.ptr<i8>>",
    "%see = arith.cmpi ne, %bit, %zero8 : {both}i8>",
]
"""It reads the mask of DOCUMENT, a byte for each pair."""


def seen(kind: list[str], documents: Tensor) -> Tensor:
    """Computes the mask of each pair of tokens."""
    q, k = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)[None]
    doc_q, doc_k = documents[:, None], documents[None]
    if kind is DOCUMENT or kind is IN_MEMORY:
        return (q >= k) & (doc_q == doc_k)
    if kind is WINDOW:
        return (q >= k) & (q - k < 20)
    hidden = (k > q) | (doc_q != doc_k)
    return torch.where(hidden, hidden ^ (k < doc_q), k <= torch.maximum(doc_q, doc_k) * q)


def memory_of(documents: Tensor | None) -> MemoryReader:
    def read(places: Places, element: str) -> Tensor | None:
        if documents is not None and element == "i8":
            return seen(IN_MEMORY, documents).to(torch.int8).flatten()[places.addresses - IN]
        at = (places.addresses - IN) // 4
        is_inside = bool(((at >= 0) & (at < LENGTH)).all())
        return documents[at] if documents is not None and is_inside else None

    return MemoryReader(read)


def some_documents(seed: int, longest: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (LENGTH,), generator=generator)
    return torch.repeat_interleave(torch.arange(LENGTH), lengths)[:LENGTH].to(torch.int32)


def expected(kind: list[str], documents: Tensor) -> dict[int, list[int]]:
    counts = seen(kind, documents).view(TILES, TILE, TILES, TILE).sum((1, 3)).flatten()
    return {SOME: ((counts > 0) & (counts < PAIRS)).int().tolist(), ALL: (counts == PAIRS).int().tolist()}


def stored(stores: Any) -> dict[int, list[int]]:
    found = {}
    for one in stores:
        start = int(one.places.addresses[0])
        assert torch.equal(one.places.addresses, start + 4 * torch.arange(TILES * TILES))
        found[start] = one.values.tolist()
    return found


def grid(lanes: int) -> tuple[int, int, int]:
    return -(-TILES * TILES // lanes), 1, 1


@pytest.mark.parametrize("kind", [DOCUMENT, WINDOW, EITHER, IN_MEMORY], ids=["document", "window", "either", "memory"])
@pytest.mark.parametrize(("lanes", "length"), [(1, 256), (8, 64), (64, 4), (4, 128)])
def test_stores_are_those_of_the_whole_mask(kind: list[str], lanes: int, length: int) -> None:
    program = mask_counts(lanes, length, [line.replace("{both}", f"tensor<{lanes}x{length}x") for line in kind])
    for seed in range(6):
        documents = some_documents(seed, (3, 12, 40)[seed % 3])
        found = stores_by_bounds(program, grid(lanes), [IN, SOME, ALL], memory_of(documents))
        assert stored(found.stores) == expected(kind, documents)


def test_a_reduction_without_a_loop_over_a_flat_axis() -> None:
    lines = [
        "tt.func public @f(%in: !tt.ptr<i32>, %out: !tt.ptr<i64>, %n: i32) attributes {noinline = false} {",
        "%c4 = arith.constant 4 : i32",
        "%pid = tt.get_program_id x : i32",
        "%first = arith.muli %pid, %c4 : i32",
        "%r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>",
        "%first1 = tt.splat %first : i32 -> tensor<64xi32>",
        "%at = arith.addi %first1, %r : tensor<64xi32>",
        "%n1 = tt.splat %n : i32 -> tensor<64xi32>",
        "%inside = arith.cmpi slt, %at, %n1 : tensor<64xi32>",
        "%zero = arith.constant dense<0> : tensor<64xi32>",
        "%base = tt.splat %in : !tt.ptr<i32> -> tensor<64x!tt.ptr<i32>>",
        "%pointer = tt.addptr %base, %at : tensor<64x!tt.ptr<i32>>, tensor<64xi32>",
        "%x = tt.load %pointer, %inside, %zero : tensor<64x!tt.ptr<i32>>",
        "%wide = arith.extsi %x : tensor<64xi32> to tensor<64xi64>",
        '%sum = "tt.reduce"(%wide) <{axis = 0 : i32}> ({',
        "^bb0(%a: i64, %b: i64):",
        "%c = arith.addi %a, %b : i64",
        "tt.reduce.return %c : i64",
        "}) : (tensor<64xi64>) -> i64",
        "%out1 = tt.addptr %out, %pid : !tt.ptr<i64>, i32",
        "tt.store %out1, %sum : !tt.ptr<i64>",
        "tt.return",
        "}",
    ]
    program = read_program("|".join(("module {", *lines, "}")))
    documents = some_documents(0, 5)
    found = stores_by_bounds(program, (10, 1, 1), [IN, ALL, 50], memory_of(documents))
    (store,) = found.stores
    assert store.values is not None
    assert store.values.tolist() == [int(documents[4 * n : min(4 * n + 64, 50)].sum()) for n in range(10)]
    assert torch.equal(store.places.addresses, ALL + 8 * torch.arange(10))


def test_a_mask_in_unknown_memory_is_unknown() -> None:
    with pytest.raises(NotEvaluated, match="unknown numbers in memory"):
        stores_by_bounds(mask_counts(8, 64, DOCUMENT), grid(8), [IN, SOME, ALL], memory_of(None))


def test_a_loop_that_carries_no_sum_is_refused() -> None:
    program = mask_counts(8, 64, DOCUMENT, added="%next = arith.muli %sum, %one")
    with pytest.raises(NotEvaluated, match="muli"):
        stores_by_bounds(program, grid(8), [IN, SOME, ALL], memory_of(some_documents(0, 12)))


def test_a_sum_that_is_added_to_itself_is_refused() -> None:
    program = mask_counts(8, 64, DOCUMENT, added="%next = arith.addi %sum, %sum")
    with pytest.raises(NotEvaluated, match="addi"):
        stores_by_bounds(program, grid(8), [IN, SOME, ALL], memory_of(some_documents(0, 12)))


def test_a_program_that_stores_unseen_is_refused() -> None:
    unseen = ["%see = arith.cmpi sge, %q, %k i32;", '"tt.experimental_descriptor_store"(%q, %k) i32;']
    with pytest.raises(NotEvaluated, match="descriptor_store"):
        stores_by_bounds(mask_counts(8, 64, unseen), grid(8), [IN, SOME, ALL], memory_of(some_documents(0, 12)))


def test_a_program_that_bounds_refuse_is_not_tried_again_but_one_whose_numbers_are_unknown_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("emu.compiled.evaluation._MOST_OPERATIONS", 100)
    refused = mask_counts(8, 64, DOCUMENT, added="%next = arith.muli %sum, %one")
    with pytest.raises(TooLong):
        Evaluator(memory_of(some_documents(0, 12))).stores(refused, grid(8), [IN, SOME, ALL])
    with pytest.raises(NotEvaluated) as unknown:
        Evaluator(memory_of(None)).stores(mask_counts(8, 64, DOCUMENT), grid(8), [IN, SOME, ALL])
    assert not isinstance(unknown.value, TooLong)


def test_sums_that_bounds_do_not_decide_are_given_up_where_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_sums, "_MOST_PIECES", 200)
    with pytest.raises(TooLong):
        stores_by_bounds(mask_counts(8, 64, DOCUMENT), grid(8), [IN, SOME, ALL], memory_of(some_documents(0, 3)))


def test_a_launch_too_long_to_be_followed_is_known_by_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is evaluated anew where its numbers have changed, and only there."""
    monkeypatch.setattr("emu.compiled.evaluation._MOST_OPERATIONS", 100)
    evaluated = []

    def counted(*given: Any) -> Any:
        evaluated.append(given)
        return stores_by_bounds(*given)

    monkeypatch.setattr("emu.compiled.evaluation.stores_by_bounds", counted)
    documents, program = some_documents(0, 12), mask_counts(8, 64, DOCUMENT)
    assert sums_along_one_axis(program)
    evaluator = Evaluator(memory_of(documents))
    for turn in range(3):
        if turn == 2:
            documents.copy_(some_documents(1, 40))
        stores = evaluator.stores(program, grid(8), [IN, SOME, ALL])
        assert stores.are_all
        assert stored(stores.found) == expected(DOCUMENT, documents)
        assert len(evaluated) == (1, 1, 2)[turn]
