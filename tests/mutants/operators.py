"""Small faults: every place of a source file where one can be planted, and what it becomes.

    sign        a + b as a - b and the other way round, a minus left out, inf as -inf
    comparison  < as <= and as >, == as !=, in as not in, is as is not
    condition   and as or, a negation or one side left out, branches exchanged, True as False
    index       a subscript or an axis off by one
    constant    a number as zero, zero as one
    dropped     a term, a factor, a rounding step, a clamp or a call whose result is not read
    swapped     lower and upper, minimum and maximum, down and up, below and above, either of two

A fault changes one expression or one statement, in the text of the file, so that what was planted
can be read as a difference of lines. Texts of errors, annotations and the names of types for them,
decorators and print-outs are left alone.
"""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass

KINDS = ("sign", "comparison", "condition", "index", "constant", "dropped", "swapped")

OPPOSITES = [
    ("lower", "upper"),
    ("least", "most"),
    ("before", "after"),
    ("old", "new"),
    ("had", "has"),
    ("jump_low", "jump_high"),
    ("ends_old", "ends_new"),
    ("min", "max"),
    ("minimum", "maximum"),
    ("amin", "amax"),
    ("clamp_min", "clamp_max"),
    ("down", "up"),
    ("below_slope", "above_slope"),
    ("below_offset", "above_offset"),
    ("z_range", "patch_range"),
    ("low", "high"),
    ("below", "above"),
    ("below_at", "above_at"),
    ("forward", "backward"),
]
OPPOSITE = {a: b for pair in OPPOSITES for a, b in (pair, pair[::-1])}

BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
REVERSED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
STEPS = {"down", "up", "settle"}
"""Functions whose result encloses their arguments."""

METHOD_STEPS = {"down", "up", "grown"}
"""Methods whose result encloses their first argument."""

GUARDS = {"abs", "nan_to_num", "masked_fill", "clamp_min", "clamp_max"}
"""Methods that only limit what they are called on."""

GUARD_WORDS = {"strict", "check_weights"}
"""Arguments that say whether to look for mistakes of the caller."""

AXES = {"amax", "any", "flatten", "index_copy", "index_fill", "squeeze", "sum", "unflatten"}
AXES |= {"unfold", "unsqueeze"}
"""Methods whose whole numbers are dimensions."""

SHUFFLES = {"permute"}
"""Methods that take an order of dimensions."""

QUIET = {"__repr__", "manual_seed"}
"""Functions that only print, or whose numbers mean nothing."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one file.

    Attributes:
        file: the file, below the package.
        kind: one of ``KINDS``.
        scope: the class and function, dotted; empty at the top of the file.
        line: the first line that changes.
        first, last: lines of the statement around it; who runs none of them does not meet it.
        before, after: the text of the lines that change, on one line each.
        source: the file with the fault.
    """

    file: str
    kind: str
    scope: str
    line: int
    first: int
    last: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is called wherever it stands: lines may move."""
        return (self.file, self.scope, self.before, self.after)

    def __str__(self) -> str:
        return (
            f"{self.file}:{self.line} ({self.kind}, in {self.scope or 'the file'})\n"
            f"    - {self.before}\n    + {self.after}"
        )


def faults(file: str, source: str) -> list[Fault]:
    """Every fault of a file, in the order of its lines; none twice."""
    found: dict[str, Fault] = {}
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for kind, scope, span, node, becomes in _Finder(ast.parse(source)).found:
        top = starts[node.lineno - 1]
        end = starts[node.end_lineno or node.lineno]
        begin = starts[node.lineno - 1] + node.col_offset
        stop = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        put = becomes.encode()
        changed = (text[:begin] + put + text[stop:]).decode()
        if changed in found:
            continue
        after = (text[top:begin] + put + text[stop:end]).decode()
        found[changed] = Fault(
            file,
            kind,
            scope,
            node.lineno,
            *span,
            _one_line(text[top:end].decode()),
            _one_line(after),
            changed,
        )
    return sorted(found.values(), key=lambda fault: fault.line)


def _one_line(text: str) -> str:
    return " ".join(text.split())


Node = ast.expr | ast.stmt
Span = tuple[int, int]
Place = tuple[str, str, Span, Node, str]


class _Finder:
    """Walks a file, and writes down what each node can become."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[Place] = []
        self._scope: list[str] = []
        self._span: Span = (0, 0)
        self._body(tree.body)

    def _add(self, kind: str, node: Node, becomes: ast.expr | str) -> None:
        text = becomes if isinstance(becomes, str) else _written(becomes)
        if ast.unparse(node) == (becomes if isinstance(becomes, str) else ast.unparse(becomes)):
            return  # a pair of two that are the same
        self.found.append((kind, ".".join(self._scope), self._span, node, text))

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name in QUIET:
                return
            self._scope.append(node.name)
            if isinstance(node, ast.FunctionDef):
                self._span = (node.body[0].lineno, node.end_lineno or node.lineno)
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    self._expression(default)
            self._body(node.body)
            self._scope.pop()
        elif isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.Pass) or (
            isinstance(node, ast.Assign) and not self._scope and _types(node.value)
        ):
            return
        elif isinstance(node, ast.AnnAssign):
            inside = not (self._scope and self._scope[-1][0].isupper())
            self._span = (node.lineno, node.end_lineno or node.lineno)
            self._expression(node.value if inside else None)  # fields have their own rules
        else:
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            self._span = (node.lineno, max(node.lineno, last or 0))
            self._own(node)
            children = list(ast.iter_child_nodes(node))
            for child in children:
                if isinstance(child, ast.expr):
                    self._expression(child)
            self._body([child for child in children if isinstance(child, ast.stmt)])

    def _own(self, node: ast.stmt) -> None:
        """What a statement can become as a whole."""
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._add("dropped", node, "pass")
        elif isinstance(node, ast.AugAssign):
            self._add("dropped", node, "pass")
            other = _other_sign(node.op)
            if other is not None:
                changed = copy.deepcopy(node)
                changed.op = other
                self._add("sign", node, ast.unparse(changed))
        elif isinstance(node, ast.If):
            if len(node.body) == 1 and isinstance(node.body[0], ast.Raise) and not node.orelse:
                self._add("dropped", node.body[0], "pass")
            if isinstance(node.test, ast.Call | ast.Name | ast.Attribute):
                self._add("condition", node.test, ast.UnaryOp(ast.Not(), node.test))
        elif isinstance(node, ast.Assign) and _pair(node.targets[0]):
            self._add("swapped", node.targets[0], _turned(node.targets[0]))
        elif isinstance(node, ast.Return) and node.value is not None and _pair(node.value):
            self._add("swapped", node.value, _turned(node.value))

    def _expression(self, node: ast.AST | None, axis: bool = False) -> None:
        if node is None or isinstance(node, ast.JoinedStr):
            return
        if axis and isinstance(node, ast.UnaryOp) and _negative(node):
            self._add("index", node, ast.Constant(0))
            return
        method = getattr(self, f"_at_{type(node).__name__.lower()}", None)
        if isinstance(node, ast.Constant):
            self._number(node, axis)
        elif method is not None:
            method(node)
        if isinstance(node, ast.Subscript):
            self._expression(node.value)
            self._expression(node.slice, axis=True)
        elif isinstance(node, ast.Call):
            self._arguments(node)
        else:
            for child in ast.iter_child_nodes(node):
                if not _said_already(node, child):
                    self._expression(child, axis and isinstance(node, ast.Tuple | ast.Slice))

    def _arguments(self, node: ast.Call) -> None:
        called = _called(node)
        if called in QUIET:
            return
        self._expression(node.func)
        if called == "isinstance":
            self._alternatives(node.args[1])
            return
        for argument in node.args:
            if called in SHUFFLES and isinstance(argument, ast.Constant):
                continue
            self._expression(argument, axis=called in AXES)
        for keyword in node.keywords:
            if keyword.arg in GUARD_WORDS:
                continue
            self._expression(keyword.value, axis=keyword.arg == "dim")

    # --- one method for each kind of expression -------------------------------------------------

    def _at_binop(self, node: ast.BinOp) -> None:
        other = _other_sign(node.op)
        if other is not None:
            self._add("sign", node, ast.BinOp(node.left, other, node.right))
        if isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            self._add("dropped", node, node.left)
        if isinstance(node.op, ast.BitAnd | ast.BitOr):
            turned = ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd()
            self._add("condition", node, ast.BinOp(node.left, turned, node.right))
            self._add("condition", node, node.left)

    def _at_unaryop(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub):
            self._add("sign", node, node.operand)
        elif isinstance(node.op, ast.Not | ast.Invert):
            self._add("condition", node, node.operand)

    def _at_compare(self, node: ast.Compare) -> None:
        for i, op in enumerate(node.ops):
            for table in (BOUNDARY, REVERSED):
                if type(op) in table:
                    changed = copy.deepcopy(node)
                    changed.ops[i] = table[type(op)]()
                    self._add("comparison", node, changed)

    def _at_boolop(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add("condition", node, ast.BoolOp(other, node.values))
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            self._add("condition", node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))

    def _at_ifexp(self, node: ast.IfExp) -> None:
        self._add("condition", node, ast.IfExp(node.test, node.orelse, node.body))

    def _at_name(self, node: ast.Name) -> None:
        if node.id in OPPOSITE and isinstance(node.ctx, ast.Load):
            self._add("swapped", node, OPPOSITE[node.id])

    def _at_attribute(self, node: ast.Attribute) -> None:
        if node.attr in OPPOSITE and isinstance(node.ctx, ast.Load):
            self._add("swapped", node, ast.Attribute(node.value, OPPOSITE[node.attr], node.ctx))
        if node.attr == "inf":
            self._add("sign", node, ast.UnaryOp(ast.USub(), node))

    def _at_call(self, node: ast.Call) -> None:
        called = _called(node)
        if isinstance(node.func, ast.Name) and called in STEPS:
            only = len(node.args) == 1
            self._add("dropped", node, node.args[0] if only else ast.Tuple(node.args, ast.Load()))
        if isinstance(node.func, ast.Attribute) and called in METHOD_STEPS and node.args:
            self._add("dropped", node, node.args[0])
        if isinstance(node.func, ast.Attribute) and called in GUARDS:
            self._add("dropped", node, node.func.value)
        if called in ("min", "max", "minimum", "maximum") and len(node.args) == 2:
            self._add("dropped", node, node.args[0])
        if called == "where" and len(node.args) == 3:
            test, first, second = node.args
            self._add("swapped", node, ast.Call(node.func, [test, second, first], []))
        if called in SHUFFLES:
            first, second, *rest = node.args
            self._add("index", node, ast.Call(node.func, [second, first, *rest], []))

    def _alternatives(self, node: ast.expr) -> None:
        """The classes of an ``isinstance``, less the last or the others."""
        if isinstance(node, ast.BinOp):
            self._add("condition", node, node.left)
            self._add("condition", node, node.right)

    def _number(self, node: ast.Constant, axis: bool) -> None:
        value = node.value
        if isinstance(value, bool):
            self._add("condition", node, ast.Constant(not value))
        elif isinstance(value, int) and axis:
            self._add("index", node, ast.Constant(value - 1 if value > 0 else 1))
        elif isinstance(value, int | float):
            self._add("constant", node, ast.Constant(type(value)(0 if value else 1)))


def _negative(node: ast.UnaryOp) -> bool:
    """Whether this is a number with a minus."""
    return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def _said_already(node: ast.AST, child: ast.AST) -> bool:
    """Whether a fault of the child is one of its parent's: a term of zero, a sign on a sign."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return child is node.right and isinstance(child, ast.Constant)
    signed = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    return signed and isinstance(child, ast.Attribute)


def _called(node: ast.Call) -> str:
    """The name of what is called, without what it belongs to."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _other_sign(op: ast.operator) -> ast.operator | None:
    return {ast.Add: ast.Sub(), ast.Sub: ast.Add()}.get(type(op))


def _types(node: ast.expr) -> bool:
    """Whether this joins types, written like ``Linear | Mapping[str, Region]``."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
        return False
    sides = [side.value if isinstance(side, ast.Subscript) else side for side in _sides(node)]
    names = [side.id for side in sides if isinstance(side, ast.Name)]
    return len(names) == len(sides) and all(n[0].isupper() and not n.isupper() for n in names)


def _sides(node: ast.expr) -> list[ast.expr]:
    """What is joined by ``|``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_sides(node.left), *_sides(node.right)]
    return [node]


def _pair(node: ast.expr) -> bool:
    return isinstance(node, ast.Tuple) and len(node.elts) == 2


def _turned(node: ast.expr) -> ast.expr:
    return ast.Tuple(node.elts[::-1], ast.Load()) if isinstance(node, ast.Tuple) else node


def _written(node: ast.expr) -> str:
    text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))
    plain = isinstance(node, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript)
    return text if plain or isinstance(node, ast.Tuple) else f"({text})"


def spread(found: list[Fault], count: int, seed: int) -> Iterator[Fault]:
    """A sample that has something of every file and kind; a larger one has all of a smaller.

    Raises:
        ValueError: the count is not positive.
    """
    if count < 1:
        raise ValueError(f"The 'count' parameter must be at least 1. Got {count} instead.")
    groups: dict[tuple[str, str], list[Fault]] = {}
    for fault in found:
        groups.setdefault((fault.file, fault.kind), []).append(fault)
    for (file, kind), group in groups.items():
        random.Random(f"{seed} {file} {kind}").shuffle(group)
    taken = 0
    while taken < count and any(groups.values()):
        for group in groups.values():
            if group and taken < count:
                taken += 1
                yield group.pop()
