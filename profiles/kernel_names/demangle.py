"""Makes C++ names of kernels readable: as much of the Itanium ABI's mangling as template instantiations in PyTorch, CUB
and CUTLASS use.

Only the name with its template arguments is wanted, so a kernel's own parameter list is not read. Grammar: "Itanium
C++ ABI: Mangling".
"""

from __future__ import annotations

from functools import lru_cache

from profiles.kernel_names.itanium import BUILTIN, BUILTIN_D, OPERATORS, STANDARD, SUFFIX, Cursor, Unreadable


@lru_cache(maxsize=4096)
def demangle(name: str) -> str:
    """The readable name with template arguments, without parameters; a name that is not mangled, or not readable,
    unchanged.
    """
    if not name.startswith("_Z"):
        return name
    try:
        return _Reader(name).function_name()
    except (Unreadable, IndexError, ValueError, RecursionError):
        return name


class _Reader(Cursor):
    def __init__(self, text: str) -> None:
        super().__init__(text, at=len("_Z"))
        self.substitutions: list[str] = []
        self.constant = False
        """True if the nested name read last was that of a const member function."""
        self.arguments: list[str] = []
        """Template arguments of the innermost template name being read, which T_ refers to."""

    def function_name(self) -> str:
        return self._name()[0]

    def _remember(self, text: str) -> str:
        self.substitutions.append(text)
        return text

    # <encoding> = name [return type, if the name is a template's] parameters
    def _encoding(self) -> str:
        self.constant = False
        name, is_template = self._name()
        suffix = " const" if self.constant else ""
        if self.at >= len(self.text) or self._peek("E"):
            return name + suffix
        if is_template:
            self._in_scope()
        parameters = []
        while self.at < len(self.text) and not self._peek("E"):
            parameters.append(self._in_scope())
        shown = ", ".join(one for one in parameters if one != "void")
        return f"{name}({shown}){suffix}"

    def _in_scope(self) -> str:
        """A type of the function whose name was just read: its own template arguments must not outlive it."""
        scope = self.arguments
        found = self._type()
        self.arguments = scope
        return found

    # <name>: the text, and whether it ends with template arguments
    def _name(self) -> tuple[str, bool]:
        if self._peek("N"):
            return self._nested()
        if self._take("Z"):
            return self._local()
        if self._peek("S") and not self._peek("St"):
            name = self._substitution()
        else:
            name = f"std::{self._unqualified()}" if self._take("St") else self._unqualified()
            if self._peek("I"):
                self._remember(name)
        if self._peek("I"):
            return name + self._template_arguments(), True
        return name, False

    def _local(self) -> tuple[str, bool]:
        function = self._encoding()
        self._expect("E")
        if self._take("s"):
            self._discriminator()
            return f"{function}::string literal", False
        if self._take("d"):
            self._index()
        inner, is_template = self._name()
        self._discriminator()
        return f"{function}::{inner}", is_template

    def _discriminator(self) -> None:
        if self._peek("_") and self.at + 1 < len(self.text) and self.text[self.at + 1].isdecimal():
            self.at += 2

    def _nested(self) -> tuple[str, bool]:
        self._expect("N")
        constant = False
        while self.at < len(self.text) and self.text[self.at] in "rVKRO":
            constant = constant or self.text[self.at] == "K"
            self.at += 1
        name, is_template = "", False
        while not self._take("E"):
            if self._peek("I"):
                name = self._remember(name + self._template_arguments())
                is_template = True
                continue
            is_template = False
            if self._peek("S") and not name:
                name = "std" if self._take("St") else self._substitution()
                continue
            if self._peek("T"):
                name = self._remember(self._template_parameter())
                continue
            if self._take("C"):
                self.at += 1
                part = name.split("<")[0].rsplit("::", 1)[-1]
            elif self._peek("D0") or self._peek("D1") or self._peek("D2"):
                self.at += 2
                part = "~" + name.split("<")[0].rsplit("::", 1)[-1]
            else:
                part = self._unqualified()
            name = self._remember(f"{name}::{part}" if name else part)
        # The whole nested name is no candidate by itself: its user (a type) remembers it.
        self.substitutions.pop()
        self.constant = constant
        return name, is_template

    def _unqualified(self) -> str:
        self._take("L")
        if self.text[self.at].isdecimal():
            length = self._number()
            name = self.text[self.at : self.at + length]
            if len(name) < length:
                raise Unreadable("cut short")
            self.at += length
            if name.startswith("_GLOBAL__N_"):
                name = "(anonymous namespace)"
        elif self._take("Ul"):
            parameters = []
            while not self._take("E"):
                parameters.append(self._type())
            shown = ", ".join(one for one in parameters if one != "void")
            name = f"{{lambda({shown})#{self._index() + 1}}}"
        elif self._take("Ut"):
            name = f"{{unnamed type#{self._index() + 1}}}"
        elif self._take("cv"):
            name = f"operator {self._type()}"
        elif self.text[self.at : self.at + 2] in OPERATORS:
            name = "operator" + OPERATORS[self.text[self.at : self.at + 2]]
            self.at += 2
        else:
            raise Unreadable(f"name at {self.at}")
        while self._take("B"):
            length = self._number()
            self.at += length
        return name

    def _substitution(self) -> str:
        if self.text[self.at : self.at + 2] in STANDARD:
            self.at += 2
            return STANDARD[self.text[self.at - 2 : self.at]]
        self._expect("S")
        index = self._sequence()
        if index >= len(self.substitutions):
            raise Unreadable("substitution")
        return self.substitutions[index]

    def _template_parameter(self) -> str:
        self._expect("T")
        index = self._index()
        return self.arguments[index] if index < len(self.arguments) else f"T{index}"

    def _template_arguments(self) -> str:
        self._expect("I")
        found: list[str] = []
        outer = self.arguments
        while not self._take("E"):
            found.append(self._template_argument())
        self.arguments = found
        if outer and not found:
            self.arguments = outer
        inside = ", ".join(one for one in found if one)
        return f"<{inside} >" if inside.endswith(">") else f"<{inside}>"

    def _template_argument(self) -> str:
        outer = self.arguments
        try:
            if self._take("L"):
                return self._literal()
            if self._take("J"):
                found = []
                while not self._take("E"):
                    found.append(self._template_argument())
                return ", ".join(found)
            if self._take("X"):
                return self._expression("E")
            return self._type()
        finally:
            self.arguments = outer

    def _literal(self) -> str:
        if self._take("_Z"):
            name = self._encoding()
            self._expect("E")
            return name
        kind = self.text[self.at]
        type_name = self._type()
        sign = "-" if self._take("n") else ""
        end = self.text.index("E", self.at)
        value = sign + self.text[self.at : end]
        self.at = end + 1
        if kind == "b":
            return {"0": "false", "1": "true"}.get(value, value)
        return value + SUFFIX[kind] if kind in SUFFIX else f"({type_name}){value}"

    def _expression(self, closing: str) -> str:
        """Reads an expression, which occurs as an array size or a decltype of a parameter: it is kept as raw text,
        brackets balanced.
        """
        if self._take("ad"):
            return f"&({self._expression(closing)})"
        if self._take("L"):
            value = self._literal()
        elif self._peek("T"):
            value = self._template_parameter()
        else:
            raise Unreadable("expression")
        self._expect(closing)
        return value

    def _type(self) -> str:
        here = self.text[self.at]
        two = self.text[self.at : self.at + 2]
        # Built-in types are no candidates for later substitutions, so they are not remembered.
        if two in BUILTIN_D:
            self.at += 2
            return BUILTIN_D[two]
        if here in BUILTIN:
            self.at += 1
            return BUILTIN[here]
        if here in "PROKV":
            self.at += 1
            after = {"P": "*", "R": "&", "O": "&&", "K": " const", "V": " volatile"}[here]
            inner = self._type()
            # C++ writes the mark of a pointer or reference to a function before its parameters.
            if inner.endswith(")") and here in "PRO" and "(" in inner and " (" in inner:
                return self._remember(inner.replace(" (", f" ({after})(", 1))
            return self._remember(inner + after)
        if here == "F":
            return self._function_type()
        if here == "A":
            self.at += 1
            size = str(self._number()) if self.text[self.at].isdecimal() else self._template_parameter()
            self._expect("_")
            return self._remember(f"{self._type()} [{size}]")
        if here == "M":
            self.at += 1
            owner = self._type()
            return self._remember(f"{self._type()} {owner}::*")
        if two == "Dp":
            self.at += 2
            return self._remember(self._type())
        if here == "T":
            name = self._remember(self._template_parameter())
            if self._peek("I"):
                name = self._remember(name + self._template_arguments())
            return name
        # `St` is the namespace std, with which a name begins; any other S abbreviates a type that is known.
        if here == "S" and two != "St":
            known = self._substitution()
            if self._peek("I"):
                known = self._remember(known + self._template_arguments())
            return known
        if here == "U":
            raise Unreadable("vendor qualifier")
        name, _ = self._name()
        return self._remember(name)

    def _function_type(self) -> str:
        self._expect("F")
        self._take("Y")
        parts = []
        while not self._take("E"):
            parts.append(self._type())
        shown = ", ".join(one for one in parts[1:] if one != "void")
        return self._remember(f"{parts[0]} ({shown})")
