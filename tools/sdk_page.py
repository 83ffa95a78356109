"""docs/reference/sdk.md: every public name of the package, with its docstring."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import sandpool
from sandpool.sdk import values
from sandpool.sdk._sync import file_watch, files, process, stream

HEAD = """\
# The Python SDK

Every name that you can import from `sandpool`. `AsyncSandbox` and the other names with `Async` in front have the same methods with
`await`, `async with` and `async for`, and are not repeated. To learn the SDK, start with [the tutorial](../tutorial/first-sandbox.md); [Connect to a
cluster](../how-to/connect.md) explains how it finds a cluster.

A `Command` is a string, which a shell runs, or a list of strings, which runs without a shell. A `Source` is bytes, text, an open file or an
iterable of bytes. A `RemotePath` is in the sandbox, a `LocalPath` on your machine; both are strings or path objects. `Progress` is a function that is
called with the bytes done and the total.
"""
ERRORS = """\
Every error of the SDK is a `SandpoolError`, can be imported from `sandpool`, and is in this tree. A name in brackets is an additional base
class, so you can catch either. Invalid arguments raise Python's own `TypeError` or `ValueError`.
"""
FIRST = ("Sandbox", "Result", "Process", "Terminal", "Files", "Connection", "Config", "SandboxInfo", "State")
HANDED_OUT = {
    "Stream": stream.Stream,
    "Input": process.Input,
    "FileReader": files.FileReader,
    "Watch": file_watch.Watch,
    "Captured": values.Captured,
}
"""Classes that methods return and users never construct."""
INNER = {"Connection": {"router", "bearer", "renew", "cluster", "resolved", "mark", "claim_watch"}}
"""Public for the other modules of the SDK, not for users; so is each `of`, which reads what a daemon says."""


def sdk_page() -> str:
    names = [name for name in sandpool.__all__ if not name.startswith(("__", "Async"))]
    things = {name: getattr(sandpool, name) for name in names}
    errors = {name: thing for name, thing in things.items() if issubclass(thing, Exception)}
    classes = {name: thing for name, thing in things.items() if name not in errors}
    order = sorted(classes, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    beside = {name: thing for name, thing in HANDED_OUT.items() if name not in classes}
    parts = [
        HEAD,
        *(_class(name, classes[name]) for name in order),
        "\n## Returned objects\n\nSome of these methods return them; you never construct them yourself.\n",
        *(_class(name, thing, "###") for name, thing in beside.items()),
        "\n## Errors\n\n",
        ERRORS,
        "\n```text\n",
        *_drawn(errors, sandpool.SandpoolError),
        "```\n\n",
        *_errors(errors),
    ]
    return re.sub(r"\n{3,}", "\n\n", "".join(parts))


def _class(name: str, thing: type, level: str = "##") -> str:
    lines = [f"\n{level} `{name}`\n", _text(thing), "", *_values(thing), ""]
    for title, text in _methods(thing):
        lines += [f"**`{title}`**", "", text, ""]
    return "\n".join(lines)


# What it holds


def _values(thing: type) -> Iterator[str]:
    """Fields, members of an enumeration, attributes and properties, each with what is said of it."""
    for base in reversed(_ours(thing)):
        yield from _written(base)
        for name, member in vars(base).items():
            if isinstance(member, property) and _shown(base, name):
                kind = inspect.get_annotations(member.fget).get("return", "") if member.fget else ""
                yield _line(name, kind, _text(member))


def _written(base: type) -> Iterator[str]:
    """What the class body and `__init__` say."""
    node = _node(base)
    start = [one.body for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    for body in (node.body, *start):
        for place, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(place, ast.AnnAssign):
                yield from _field(base, place.target, ast.unparse(place.annotation), following)
            elif isinstance(place, ast.Assign):
                value = ast.unparse(place.value) if body is node.body else ""
                yield from _field(base, place.targets[0], value, following)


def _field(base: type, target: ast.expr, kind: str, following: ast.stmt | None) -> Iterator[str]:
    in_body = isinstance(target, ast.Name)
    name = target.id if isinstance(target, ast.Name) else target.attr if isinstance(target, ast.Attribute) else "_"
    declared = not in_body and name in inspect.get_annotations(base)
    if _shown(base, name) and not declared:
        yield _line(name, kind, _said(following))


def _shown(thing: type, name: str) -> bool:
    return not name.startswith("_") and name != "of" and name not in INNER.get(thing.__name__, ())


def _line(name: str, kind: str, said: str) -> str:
    return f"- `{name}`" + (f": `{kind}`" if kind else "") + (f". {' '.join(said.split())}" if said else "")


def _said(node: ast.stmt | None) -> str:
    """The text that stands below a field, as its docstring."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value
    return ""


# What it does


def _methods(thing: type) -> Iterator[tuple[str, str]]:
    for base in reversed(_ours(thing)):
        for name, member in vars(base).items():
            if not _shown(thing, name):
                continue
            if isinstance(member, classmethod | staticmethod):
                yield f"{thing.__name__}.{name}{_signature(member.__func__)}", _text(member.__func__)
            elif inspect.isfunction(member):
                yield f"{name}{_signature(member)}", _text(member)


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    kept = [
        one.replace(annotation=_Bare(one.annotation))
        for one in signature.parameters.values()
        if one.name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=kept, return_annotation=_Bare(signature.return_annotation)))


class _Bare:
    """An annotation that is shown as it was written, without quotes."""

    def __init__(self, text: object) -> None:
        self.text = str(text).replace("builtins.", "")

    def __repr__(self) -> str:
        return self.text


# Classes


def _ours(thing: type) -> list[type]:
    """The class and those of its bases that are ours, the class first."""
    return [base for base in thing.__mro__ if base.__module__.startswith("sandpool.")]


@cache
def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _node(thing: type) -> ast.ClassDef:
    module = inspect.getmodule(thing)
    assert module is not None
    return next(one for one in _tree(module).body if isinstance(one, ast.ClassDef) and one.name == thing.__name__)


def _text(thing: Any) -> str:
    return (thing.__doc__ and inspect.getdoc(thing)) or ""


def _drawn(errors: dict[str, Any], root: type, above: str = "") -> Iterator[str]:
    """The tree of the errors, a line each. One with several bases stands below the first that is ours, and names the others."""
    if not above:
        yield f"{root.__name__}\n"
    below = [one for one in errors.values() if _parent(one) is root]
    for one in below:
        last = one is below[-1]
        also = ", ".join(
            base.__name__ for base in one.__bases__ if base is not root and base.__name__ in {*errors, *dir(builtins)}
        )
        yield f"{above}{'└── ' if last else '├── '}{one.__name__}{f' ({also})' if also else ''}\n"
        yield from _drawn(errors, one, above + ("    " if last else "│   "))


def _parent(error: type) -> type | None:
    return next((base for base in error.__bases__ if issubclass(base, sandpool.SandpoolError)), None)


def _errors(errors: dict[str, Any]) -> Iterator[str]:
    yield "| error | is also | raised when |\n|---|---|---|\n"
    for name, error in errors.items():
        above = ", ".join(
            f"`{base.__name__}`" for base in error.__bases__ if issubclass(base, Exception) and base is not Exception
        )
        summary = " ".join(_text(error).split("\n\n")[0].split())
        yield f"| `{name}` | {above} | {summary.replace('|', 'or')} |\n"
