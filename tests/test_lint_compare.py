"""Expressions are compared with `is` or `structural_equal`, never with what calls `==`.

On an expression `==` builds a comparison and its truth value raises, but only when that line runs. This lint finds the
usual slips in the source: `==` and `!=` on a name or a field annotated as an expression; `in`, `index`, `count` and
`remove` on a sequence of them; a literal in a `match` pattern in the place of a field that holds an expression. A line
that means to build a comparison says so with the comment `# builds a comparison`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tensorir", "schedule", "targets", "topi", "graphir")
SEQUENCES = ("tuple", "list", "Sequence", "Iterable", "Collection")
BUILDS = "# builds a comparison"

Fields = dict[str, dict[str, str]]  # class name to its annotated fields, in order


def kind_of(annotation: ast.expr | None, classes: frozenset[str]) -> str | None:
    """'one' for an expression, perhaps optional; 'many' for a sequence of them; None for anything else."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return kind_of(ast.parse(annotation.value, mode="eval").body, classes)
    if isinstance(annotation, ast.Name | ast.Attribute):
        name = annotation.id if isinstance(annotation, ast.Name) else annotation.attr
        return "one" if name in classes else None
    if isinstance(annotation, ast.BinOp):  # Expr | None is one; Expr | int may well be the int after a check
        parts = [p for p in (annotation.left, annotation.right) if not isinstance(p, ast.Constant)]
        kinds = {kind_of(part, classes) for part in parts}
        return kinds.pop() if len(kinds) == 1 else None
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name | ast.Attribute):
        head = annotation.value.id if isinstance(annotation.value, ast.Name) else annotation.value.attr
        if head in SEQUENCES:
            elements = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            return "many" if any(kind_of(element, classes) == "one" for element in elements) else None
    return None


def find_classes(trees: list[ast.Module]) -> tuple[frozenset[str], Fields]:
    """Names of the expression classes (Expr and what derives from it), and every class's annotated fields' kinds."""
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    classes = {"Expr"}
    grown = True
    while grown:
        derived = {
            node.name for node in nodes for base in node.bases if isinstance(base, ast.Name) and base.id in classes
        }
        grown = not derived <= classes
        classes |= derived
    frozen = frozenset(classes)
    fields = {
        node.name: {
            item.target.id: kind_of(item.annotation, frozen) or ""
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        for node in nodes
    }
    return frozen, fields


def sure_fields(fields: Fields) -> dict[str, str]:
    """Field names whose kind is the same in every class that has such a field."""
    kinds: dict[str, set[str]] = {}
    for owned in fields.values():
        for name, kind in owned.items():
            kinds.setdefault(name, set()).add(kind)
    return {name: found.pop() for name, found in kinds.items() if len(found) == 1}


class Lint(ast.NodeVisitor):
    """Collects (line, what) of the slips in one file."""

    def __init__(self, classes: frozenset[str], fields: Fields) -> None:
        self.classes, self.fields, self.attributes = classes, fields, sure_fields(fields)
        self.names: list[dict[str, str]] = [{}]
        self.faults: list[tuple[int, str]] = []

    def kind(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self.names) if node.id in scope), "")
        if isinstance(node, ast.Attribute):
            return self.attributes.get(node.attr, "")
        return "literal" if isinstance(node, ast.Tuple | ast.List) else ""

    def fault(self, node: ast.AST, what: str) -> None:
        self.faults.append((getattr(node, "lineno", 0), what))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.names.append({a.arg: kind_of(a.annotation, self.classes) or "" for a in arguments})
        self.generic_visit(node)
        self.names.pop()

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.names[-1][node.target.id] = kind_of(node.annotation, self.classes) or ""
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:]):
            kinds = (self.kind(left), self.kind(right))
            if isinstance(op, ast.Eq | ast.NotEq) and ("one" in kinds or "many" in kinds):
                self.fault(node, f"== on an expression: {ast.unparse(node)}")
            if isinstance(op, ast.In | ast.NotIn) and (kinds[1] == "many" or kinds == ("one", "literal")):
                self.fault(node, f"in on expressions: {ast.unparse(node)}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in ("index", "count", "remove") and node.args:
            if self.kind(function.value) == "many":
                self.fault(node, f"{function.attr} compares with ==: {ast.unparse(node)}")
        self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        name = node.cls.attr if isinstance(node.cls, ast.Attribute) else getattr(node.cls, "id", "")
        owned = self.fields.get(name, {})
        places = [*zip(owned, node.patterns), *zip(node.kwd_attrs, node.kwd_patterns)]
        for field, pattern in places:
            if isinstance(pattern, ast.MatchValue) and owned.get(field):
                self.fault(pattern, f"a literal for the expression {name}.{field} in a match calls ==")
        self.generic_visit(node)


def lint(source: str, classes: frozenset[str], fields: Fields) -> list[tuple[int, str]]:
    visitor = Lint(classes, fields)
    visitor.visit(ast.parse(source))
    lines = source.splitlines()
    return [(line, what) for line, what in visitor.faults if BUILDS not in lines[line - 1]]


@cache
def sources() -> dict[Path, str]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {path: path.read_text(encoding="utf-8") for path in paths}


def test_expressions_are_not_compared_by_value() -> None:
    classes, fields = find_classes([ast.parse(text) for path, text in sources().items() if "tensorir" in path.parts])
    assert {"Expr", "Var"} <= classes
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path, text in sources().items()
        for line, what in lint(text, classes, fields)
    ]
    assert not faults, "\n".join(faults)


DECLARATIONS = """
class Expr: pass
class Var(Expr):
    name: str
class Add(Expr):
    left: Expr
    right: Expr
class Loop:
    extent: Expr
    axes: tuple[Var, ...]
"""


@pytest.mark.parametrize(
    "planted",
    [
        "def f(a: Expr, b): return a == b",
        "def f(a: 'Expr | None'): return a != None",
        "def f(a: Var): return a in (x, y)",
        "def f(a, many: tuple[Var, ...]): return a in many",
        "def f(many: list[Expr], a): return many.index(a)",
        "def f(a, many: list[Var]): many.remove(a)",
        "def f(many: tuple[Expr, ...], other): return many == other",
        "def f(loop): return loop.extent == 1",
        "def f(loop, v): return v not in loop.axes",
        "def f(e):\n    match e:\n        case Add(_, 0): pass",
        "def f(e):\n    match e:\n        case ir.Add(left=1): pass",
        "def f():\n    a: Expr = make()\n    return g if a == 0 else h",
        "class C:\n    async def f(self, *, a: ir.Var): return 1 == a",
    ],
)
def test_planted_comparison_is_found(planted: str) -> None:
    classes, fields = find_classes([ast.parse(DECLARATIONS)])
    assert len(lint(planted, classes, fields)) == 1


@pytest.mark.parametrize(
    "allowed",
    [
        "def f(a: Expr, b): return a is b",
        "def f(a: Expr): return a == 0  # builds a comparison",
        "def f(a: Var, table: dict[Var, int]): return a in table",
        "def f(a: Expr, b: int): return b == 0",
        "def f(v): return v.name == 'i'",
        "def f(e):\n    match e:\n        case Var(name='i'): pass",
        "f = lambda i: i == 0",
        "def f(a: Expr):\n    def g(a: int): return a == 0\n    return g",
    ],
)
def test_allowed_comparison_passes(allowed: str) -> None:
    classes, fields = find_classes([ast.parse(DECLARATIONS)])
    assert lint(allowed, classes, fields) == []
