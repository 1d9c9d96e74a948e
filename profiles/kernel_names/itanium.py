"""The Itanium C++ ABI's mangling: letters and what they stand for, and a cursor that reads its numbers."""

from __future__ import annotations

BUILTIN = {
    "v": "void",
    "w": "wchar_t",
    "b": "bool",
    "c": "char",
    "a": "signed char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
    "x": "long long",
    "y": "unsigned long long",
    "n": "__int128",
    "o": "unsigned __int128",
    "f": "float",
    "d": "double",
    "e": "long double",
    "g": "__float128",
    "z": "...",
}
BUILTIN_D = {
    "Dh": "_Float16",
    "Di": "char32_t",
    "Ds": "char16_t",
    "Dn": "decltype(nullptr)",
    "Da": "auto",
    "Dc": "decltype(auto)",
}
STANDARD = {
    "St": "std",
    "Sa": "std::allocator",
    "Sb": "std::basic_string",
    "Ss": "std::string",
    "Si": "std::istream",
    "So": "std::ostream",
    "Sd": "std::iostream",
}
OPERATORS = {
    "cl": "()",
    "ix": "[]",
    "pl": "+",
    "mi": "-",
    "ml": "*",
    "dv": "/",
    "rm": "%",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "gt": ">",
    "le": "<=",
    "ge": ">=",
    "an": "&",
    "or": "|",
    "eo": "^",
    "co": "~",
    "ls": "<<",
    "rs": ">>",
    "nt": "!",
    "aa": "&&",
    "oo": "||",
    "pp": "++",
    "mm": "--",
    "aS": "=",
    "pL": "+=",
    "mI": "-=",
    "mL": "*=",
    "dV": "/=",
    "pt": "->",
    "ng": "-",
    "ps": "+",
}
SUFFIX = {"j": "u", "l": "l", "m": "ul", "x": "ll", "y": "ull", "i": ""}


class Unreadable(Exception):
    """The name uses a part of the grammar that is not read here."""


class Cursor:
    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = at

    def _peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def _take(self, token: str) -> bool:
        found = self._peek(token)
        if found:
            self.at += len(token)
        return found

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise Unreadable(f"expected {token} at {self.at}")

    def _number(self) -> int:
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isdecimal():
            self.at += 1
        if start == self.at:
            raise Unreadable("expected a number")
        return int(self.text[start : self.at])

    def _sequence(self) -> int:
        """`_` is 0, `0_` is 1, `1_` is 2 ... in base 36."""
        end = self.text.index("_", self.at)
        digits = self.text[self.at : end]
        self.at = end + 1
        return int(digits, 36) + 1 if digits else 0

    def _index(self) -> int:
        """An index in base 10: T_, T0_, Ul...E_, Ul...E0_."""
        if self._take("_"):
            return 0
        number = self._number() + 1
        self._expect("_")
        return number
