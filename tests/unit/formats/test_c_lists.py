"""Entries of a list that C compiles."""

from __future__ import annotations

import pytest

from formats.c_lists import ListError, entries

LIST = """
/* KIND(NOT, one) */
#define KIND(x) /* nor this */
KIND(FIRST, first, "a text, with (brackets) and \\"commas\\",") KIND(
    SECOND, W(a, 1) W(b, 2),
    "two" " texts")
OTHER(no)
"""


def test_arguments_are_texts_names_and_what_is_in_brackets() -> None:
    first, second = entries(LIST, "KIND")
    assert first == ("KIND", ("FIRST", "first", 'a text, with (brackets) and \\"commas\\",'))
    assert second == ("KIND", ("SECOND", "W(a, 1) W(b, 2)", "two texts"))


def test_several_macros_keep_the_order_of_the_list() -> None:
    assert [entry.macro for entry in entries("A(1) B(2) A(3) C(4)", "A", "B")] == ["A", "B", "A"]


def test_an_entry_that_does_not_end_is_an_error() -> None:
    with pytest.raises(ListError, match="FIRST"):
        list(entries('KIND(FIRST, "a', "KIND"))
