"""Conditions over columns, such as `width >= 512 and similarity > 0.3`, and the rows for which they hold.

The text is parsed by Python's grammar, and only the syntax that is listed here is accepted. It is never run by Python, so a
condition can do nothing but select rows. Columns are read in blocks, so memory is limited to the result: one byte a row.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.columns import values as vector
from wids.columns.names import suggest
from wids.columns.values import Values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

_LONGEST = 10_000
"""The most characters in an expression."""
_DEEPEST = 50
"""The deepest nesting of an expression's parts."""
_BLOCK_ROWS = 1 << 16
_LINE_ENDS = re.compile(r"\r\n?|\n")
"""The line ends of Python's parser."""

_ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_FUNCTIONS = ("abs", "len", "max", "min")
_ALLOWED = (
    "an expression is made of columns, numbers, text, True, False, None, + - * / // %, comparisons, in, is None, and, or, not, "
    f"and the functions {', '.join(_FUNCTIONS)}"
)
_KIND_NAMES = {"number": "a number", "text": "text", "truth": "true or false", "none": "None"}


class Expression:
    """A condition over columns, parsed and checked.

    Missing values behave as NaN does in Python: every comparison with one is false, except `!=`. `x is None` tests for them.
    A division by zero gives a missing value. `'cat' in caption` searches a text. The name of a column may contain dots.

    Args:
        text: The condition, such as `"width >= 512 and similarity > 0.3"`.

    Raises:
        ValueError: The text is not an expression, or contains something that is not allowed; the message names the place.

    Examples:
        >>> condition = Expression("256 <= width < 1024 and not caption == ''")
        >>> condition.columns
        ('caption', 'width')
        >>> Expression("__import__('os').system('true')")
        Traceback (most recent call last):
        ...
        ValueError: "__import__('os').system('true')", character 1: only abs, len, max, min can be called
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._tree = self._parse()
        places: dict[str, ast.expr] = {}
        self._check(self._tree, 0, places)
        self._places = places

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the condition names, in alphabetical order."""
        return tuple(sorted(self._places))

    def find_rows(
        self,
        read: Callable[[str, int, int], tuple[NDArray[Any], NDArray[np.bool_] | None]],
        num_rows: int,
        names: Iterable[str],
    ) -> NDArray[np.bool_]:
        """Return a mask of the rows for which the condition is true.

        Args:
            read: A function of `(column, start, stop)` that returns the values of these rows, in the form that
                `wids.columns.values.from_column` takes.
            num_rows: Number of rows in the table.
            names: Names of all columns of the table.

        Returns:
            `(num_rows,)` bool.

        Raises:
            ValueError: The condition names a column that does not exist, or combines values that cannot be, as `'a' < 1`
                does; the message names the place.
        """
        there = sorted(names)
        for name, node in self._places.items():
            if name not in there:
                raise self._error(node, f"there is no column {name!r}; {suggest(name, there)}")
        found = np.zeros(num_rows, np.bool_)
        # The types of values do not depend on the rows, so an empty first block finds all errors before any rows are read.
        edges = [0, 0, *range(_BLOCK_ROWS, num_rows, _BLOCK_ROWS), num_rows]
        for start, stop in pairwise(edges):
            block = {name: vector.from_column(*read(name, start, stop)) for name in self._places}
            found[start:stop] = self._truth(self._tree, block).is_true()
        return found

    # Parsing

    def _parse(self) -> ast.expr:
        if len(self.text) > _LONGEST:
            raise ValueError(f"the expression has {len(self.text)} characters; at most {_LONGEST} are read")
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            end = len(self.text) + 1
            # The offset is 0 where the text ends too early.
            place = min(self._line_start(error.lineno or 1) + error.offset, end) if error.offset else end
            raise self._error_at(place, f"{error.msg}; {_ALLOWED}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise ValueError(f"{self._shown()}: cannot be parsed, {error or 'it is too deep'}; {_ALLOWED}") from None

    def _check(self, node: ast.expr, depth: int, places: dict[str, ast.expr]) -> None:
        """Check that an expression contains only what is allowed, and add the columns that it names to `places`."""
        if depth > _DEEPEST:
            raise self._error(node, f"is nested more than {_DEEPEST} levels deep; make it simpler")
        for part in self._parts(node, places):
            self._check(part, depth + 1, places)

    def _parts(self, node: ast.expr, places: dict[str, ast.expr]) -> list[ast.expr]:
        match node:
            case ast.Constant(value=None | bool() | float() | str()):
                return []
            case ast.Constant(value=int() as number):
                if abs(number) >= 1 << 64:
                    raise self._error(node, "this number is too large; at most 64 bits are read")
                return []
            case ast.Name() | ast.Attribute():
                places.setdefault(self._column(node), node)
                return []
            case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
                return [operand]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                return [left, right]
            case ast.BoolOp(values=values):
                return values
            case ast.Compare():
                return self._compared(node)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
                least, most = (2, _LONGEST) if name in {"max", "min"} else (1, 1)
                if not least <= len(arguments) <= most:
                    raise self._error(
                        node,
                        f"{name} takes {'one value' if most == 1 else 'two values or more'}, but was given {len(arguments)}",
                    )
                return arguments
            case ast.Call(func=ast.Name(id=name), keywords=[keyword, *_]) if name in _FUNCTIONS:
                raise self._error(keyword.value, f"{name} takes no named arguments; write the values alone")
            case ast.Call():
                raise self._error(node, f"only {', '.join(_FUNCTIONS)} can be called")
            case _:
                raise self._error(node, f"this is not allowed here; {_ALLOWED}")

    def _compared(self, node: ast.Compare) -> list[ast.expr]:
        parts = [node.left]
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, (ast.Is, ast.IsNot)):
                if not (isinstance(right, ast.Constant) and right.value is None):
                    raise self._error(right, "only None may follow is; compare with ==")
            elif isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                for element in right.elts:
                    self._literal(element)
            else:
                parts.append(right)
        return parts

    def _column(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Attribute):
            return f"{self._column(node.value)}.{node.attr}"
        raise self._error(node, "attributes of values cannot be read; only the name of a column may have a dot")

    def _literal(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
        raise self._error(node, "a list may hold only numbers and text")

    # Values

    def _values(self, node: ast.expr, block: dict[str, Values]) -> Values:
        match node:
            case ast.Constant(value=value):
                return vector.constant(value)  # type: ignore[arg-type]  # _check() admits no other types
            case ast.Name() | ast.Attribute():
                return block[self._column(node)]
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Values("truth", ~self._truth(operand, block).is_true())
            case ast.UnaryOp(op=op, operand=operand):
                number = self._number(operand, block)
                return self._bounded(node, vector.negate, number) if isinstance(op, ast.USub) else number.numbers()
            case ast.BinOp(left=left, op=op, right=right):
                sides = self._number(left, block), self._number(right, block)
                return self._bounded(node, vector.calculate, _ARITHMETIC[type(op)], *sides)
            case ast.BoolOp(op=op, values=values):
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                first, *others = [self._truth(value, block).is_true() for value in values]
                for other in others:
                    first = join(first, other)
                return Values("truth", first)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._chain([left, *comparators], ops, block)
            case ast.Call(func=ast.Name(id="len"), args=[argument]):
                return vector.count_characters(self._of_kind(argument, block, "text"))
            case ast.Call(func=ast.Name(id="abs"), args=[argument]):
                return self._bounded(node, vector.absolute, self._number(argument, block))
            case ast.Call(func=ast.Name(id=name), args=arguments):
                choose = np.minimum if name == "min" else np.maximum
                return vector.extreme(choose, [self._number(argument, block) for argument in arguments])
        raise AssertionError("the expression was checked")

    def _chain(self, sides: list[ast.expr], ops: list[ast.cmpop], block: dict[str, Values]) -> Values:
        """Return the value of a chain such as `a < b < c`, which is true where each pair is."""
        result: Any = np.ones((), np.bool_)
        for left, op, right in zip(sides, ops, sides[1:], strict=False):
            result = result & self._compare(left, op, right, block).data
        return Values("truth", np.asarray(result))

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr, block: dict[str, Values]) -> Values:
        if isinstance(op, (ast.Is, ast.IsNot)):
            missing = vector.is_missing(self._values(left, block))
            return missing if isinstance(op, ast.Is) else Values("truth", ~missing.data)
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._membership(left, right, block)
            return found if isinstance(op, ast.In) else Values("truth", ~found.data)
        one, other = self._values(left, block), self._values(right, block)
        if "none" in {one.kind, other.kind}:
            raise self._error(left, "None is compared with is None, or is not None")
        if (one.kind == "text") != (other.kind == "text"):
            raise self._error(
                left,
                f"{_KIND_NAMES[one.kind]} is compared with {_KIND_NAMES[other.kind]}; both must be text, or neither",
            )
        return vector.compare(_COMPARISONS[type(op)], one, other)

    def _membership(self, left: ast.expr, right: ast.expr, block: dict[str, Values]) -> Values:
        if not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
            return vector.is_part(self._of_kind(left, block, "text"), self._of_kind(right, block, "text"))
        values = self._values(left, block)
        choices = {element: self._literal(element) for element in right.elts}
        for element, choice in choices.items():
            if isinstance(choice, str) != (values.kind == "text"):
                raise self._error(element, f"{choice!r} is looked for among values that are {_KIND_NAMES[values.kind]}")
        return vector.is_among(values, frozenset(choices.values()))

    def _truth(self, node: ast.expr, block: dict[str, Values]) -> Values:
        return self._of_kind(node, block, "truth")

    def _number(self, node: ast.expr, block: dict[str, Values]) -> Values:
        values = self._values(node, block)
        if values.kind not in {"number", "truth"}:
            raise self._error(node, f"is {_KIND_NAMES[values.kind]} where a number is needed")
        return values

    def _of_kind(self, node: ast.expr, block: dict[str, Values], kind: str) -> Values:
        values = self._values(node, block)
        if values.kind != kind:
            hint = "; compare it with something" if kind == "truth" else ""
            raise self._error(node, f"is {_KIND_NAMES[values.kind]} where {_KIND_NAMES[kind]} is needed{hint}")
        return values

    def _bounded(self, node: ast.expr, function: Callable[..., Values], *arguments: Any) -> Values:
        try:
            return function(*arguments)
        except OverflowError:
            raise self._error(node, "gives a number that is too large") from None

    # Messages

    def _error(self, node: ast.expr, what: str) -> ValueError:
        # The parser gives places as bytes of UTF-8 from the start of the line; messages count characters of the text.
        start = self._line_start(node.lineno)
        column = len(self.text[start:].encode()[: node.col_offset].decode())
        return self._error_at(start + column + 1, what)

    def _line_start(self, number: int) -> int:
        """Return the place in the text, counted from 0, at which a line begins; lines are counted from 1."""
        return [0, *(end.end() for end in _LINE_ENDS.finditer(self.text))][number - 1]

    def _error_at(self, place: int, what: str) -> ValueError:
        return ValueError(f"{self._shown()}, character {place}: {what}")

    def _shown(self) -> str:
        return repr(self.text if len(self.text) <= 100 else f"{self.text[:99]}…")
