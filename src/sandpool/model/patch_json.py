"""JSON patch (RFC 6902) as an API server applies it, that is with the habits of the Go library below it:

- an index may be negative and then counts from the end;
- `replace` of an absent member adds it, `copy` of one adds null;
- `test` of an absent member against null, or against no value, holds. The claim path stands on this one.

Copy-on-write: each container on the way to a change is copied once for a whole patch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from sandpool.model.documents import MAX_DEPTH, BadPatch, Json, PatchError, PatchTooLarge, depth, go_kind, same

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
_INDEX = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_INDEX_DIGITS = 18
_REMEMBERED_PATH = 256  # characters; writers use the same few paths again and again, and those are short
_TEXTS = ("op", "path", "from")
_TEST = "test failed"
_MISSING = "missing value"
_INVALID_INDEX = "invalid index referenced"
_CONTAINERS = (dict, list)

Operation = dict[str, Any]
Path = tuple[str, ...]
"""The parts of a path, unescaped. The first is empty in a proper one, and never looked at."""


def apply_json_patch(doc: Json, operations: Json) -> Json:
    """The document with every operation applied in order; nothing of it if one fails."""
    check_operations(operations)
    run = _Run(doc)
    for operation in operations:
        name = operation.get("op") if operation else None
        step = _STEPS.get(name)
        if step is None:
            raise PatchError(f"Unexpected kind: {'unknown' if name is None else name}")
        step(run, operation)
    return run.doc


def check_operations(operations: Json) -> None:
    """Refuses what is not a JSON patch, before any document is looked at."""
    if type(operations) is not list:
        raise BadPatch(_cannot_decode(operations, "value of type []handlers.jsonPatchOp"))
    for operation in operations:
        if operation is None:
            continue
        if type(operation) is not dict:
            raise BadPatch(_cannot_decode(operation, "value of type handlers.jsonPatchOp"))
        for field, value in operation.items():
            if type(value) is not str and value is not None and field in _TEXTS:
                raise BadPatch(_cannot_decode(value, f"struct field jsonPatchOp.{field} of type string"))
    if len(operations) > MAX_OPERATIONS:
        raise PatchTooLarge(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )


def _cannot_decode(value: Json, place: str) -> str:
    return f"error decoding patch: json: cannot unmarshal {go_kind(value)} into Go {place}"


class _Run:
    """One application of a patch: the document so far, and which of its containers are already our own copies."""

    __slots__ = ("_last", "_ours", "_where", "copied", "doc")

    def __init__(self, doc: Json) -> None:
        self.doc = doc
        self.copied = 0
        self._ours: dict[int, Json] = {}  # keeps each copy alive, so that its id stays its own
        # The container that was written to last: the next operation often means the same one. Nothing else has been
        # written to since, so it is still where it was.
        self._where: Path = ()
        self._last: Json = None

    def find(self, path: Path) -> Json:
        """The container that the last part of a path belongs to, for reading. None: there is none."""
        node = self.doc if len(path) > 1 else None
        for part in path[1:-1]:
            if type(node) is dict:
                node = node.get(part)
            elif type(node) is list:
                node = _item(node, part)
            else:
                return None
        return node if type(node) in _CONTAINERS else None

    def own(self, path: Path) -> Json:
        """The same container, for writing. None: there is none. What was copied on the way to nowhere harms nobody."""
        where = path[:-1]
        if where == self._where and where:
            return self._last
        if not where or type(self.doc) not in _CONTAINERS:
            return None
        self.doc = node = self._copy(self.doc)
        for part in path[1:-1]:
            key: Any = part
            if type(node) is dict:
                child = node.get(part)
            else:
                child = _item(node, part)
                key = 0 if child is None else _index(node, part)
            if type(child) not in _CONTAINERS:
                return None
            if id(child) not in self._ours:
                node[key] = child = self._copy(child)
            node = child
        self._where, self._last = where, node
        return node

    def _copy(self, node: Json) -> Json:
        if id(node) in self._ours:
            return node
        copy = node.copy()
        self._ours[id(copy)] = copy
        return copy

    def share(self) -> None:
        """From now on part of the document is in two places: no container may be changed in place any more."""
        self._ours.clear()
        self._where = ()

    def replace(self, doc: Json) -> None:
        self.doc = doc
        self._where = ()


def _insert(node: Json, path: Path, value: Json) -> None:
    """Adds a value to a container of our own, where the last part of the path says."""
    check_depth(path, value)
    key = path[-1]
    if type(node) is dict:
        node[key] = value
    elif key == "-":
        node.append(value)
    else:
        if _INDEX.fullmatch(key) is None or len(key) > _MAX_INDEX_DIGITS:
            raise PatchError(
                f"value was not a proper array index: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax"
            )
        node.insert(_bounded(int(key), len(node) + 1), value)


def _delete(node: Json, key: str) -> None:
    if type(node) is list:
        del node[_index(node, key)]
    elif key in node:
        del node[key]
    else:
        raise PatchError(f"Unable to remove nonexistent key: {key}: {_MISSING}")


def check_depth(path: Path, value: Json) -> None:
    if type(value) is str and len(path) <= MAX_DEPTH:
        return
    if len(path) - 1 + depth(value) > MAX_DEPTH:
        raise PatchError(f"the document would nest deeper than {MAX_DEPTH} levels at {'/'.join(path)}")


def _add(run: _Run, operation: Operation) -> None:
    text = operation.get("path")
    if text is None:
        text = _text(operation, "add")  # which raises
    path = _remembered(text) if len(text) <= _REMEMBERED_PATH else _split(text)
    node, value = run.own(path), operation.get("value")
    if type(node) is dict and type(value) is str and len(path) <= MAX_DEPTH:  # most of them: a label, an annotation
        node[path[-1]] = value
        return
    if node is None:
        raise PatchError(f'add operation does not apply: doc is missing path: "{text}": {_MISSING}')
    try:
        _insert(node, path, value)
    except PatchError as error:
        raise PatchError(f"error in add for path: '{text}': {error}") from None


def _remove(run: _Run, operation: Operation) -> None:
    text = operation.get("path")
    if text is None:
        text = _text(operation, "remove")  # which raises
    path = _remembered(text) if len(text) <= _REMEMBERED_PATH else _split(text)
    node = run.own(path)
    if type(node) is dict and path[-1] in node:
        del node[path[-1]]
        return
    if node is None:
        raise PatchError(f'remove operation does not apply: doc is missing path: "{text}": {_MISSING}')
    try:
        _delete(node, path[-1])
    except PatchError as error:
        raise PatchError(f"error in remove for path: '{text}': {error}") from None


def _replace(run: _Run, operation: Operation) -> None:
    text, value = _text(operation, "replace"), operation.get("value")
    path = _parts(text)
    if text == "":
        if type(value) not in _CONTAINERS:
            raise PatchError("replace operation value must be object or array")
        check_depth(path, value)
        run.replace(value)
        return
    node = run.own(path)
    if node is None:
        raise PatchError(f"replace operation does not apply: doc is missing path: {text}: {_MISSING}")
    check_depth(path, value)
    if type(node) is dict:
        node[path[-1]] = value
        return
    try:
        index = _index(node, path[-1])
    except PatchError:
        raise PatchError(f"replace operation does not apply: doc is missing key: {text}: {_MISSING}") from None
    node[index] = value


def _move(run: _Run, operation: Operation) -> None:
    source = _text(operation, "move", "from")
    path = _parts(source)
    node = run.find(path)
    if node is None:
        raise PatchError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
    try:
        value = _get(node, path[-1])
        _delete(run.own(path), path[-1])
    except PatchError as error:
        raise PatchError(f"error in move for path: '{path[-1]}': {error}") from None
    text = _text(operation, "move")
    path = _parts(text)
    node = run.own(path)
    if node is None:
        raise PatchError(f"move operation does not apply: doc is missing destination path: {text}: {_MISSING}")
    try:
        _insert(node, path, value)
    except PatchError as error:
        raise PatchError(f"error in move for path: '{text}': {error}") from None


def _copy(run: _Run, operation: Operation) -> None:
    source = _text(operation, "copy", "from")
    path = _parts(source)
    node = run.find(path)
    if node is None:
        raise PatchError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
    try:
        value = _get(node, path[-1])
    except PatchError as error:
        raise PatchError(f"error in copy for from: '{source}': {error}") from None
    text = _text(operation, "copy")
    path = _parts(text)
    if run.find(path) is None:
        raise PatchError(f"copy operation does not apply: doc is missing destination path: {text}: {_MISSING}")
    # Sharing makes a copy free in memory, but not on the wire: without this limit a few copies of copies fill it.
    run.copied += len(msgspec.json.encode(value))
    if run.copied > MAX_COPIED_BYTES:
        raise PatchError(
            "Unable to complete the copy, the accumulated size increase of copy is "
            f"{run.copied}, exceeding the limit {MAX_COPIED_BYTES}"
        )
    run.share()
    try:
        _insert(run.own(path), path, value)
    except PatchError as error:
        raise PatchError(f"error while adding value during copy: {error}") from None


def _test(run: _Run, operation: Operation) -> None:
    text, value = _text(operation, "test"), run.doc
    if text != "":
        path = _parts(text)
        node = run.find(path)
        if node is None:
            raise PatchError(f"test operation does not apply: is missing path: {text}: {_MISSING}")
        try:
            value = _get(node, path[-1])
        except PatchError as error:
            raise PatchError(f"error in test for path: '{text}': {error}") from None
    if not same(value, operation.get("value")):
        raise PatchError(f"testing value {text} failed: {_TEST}")


_STEPS: dict[str | None, Callable[[_Run, Operation], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _text(operation: Operation, name: str, field: str = "path") -> str:
    path: str | None = operation.get(field)
    if path is None:
        terse = field == "path" and name in ("add", "remove", "copy")
        why = "" if terse else f"operation{',' if field == 'from' else ''} missing {field} field: "
        raise PatchError(f"{name} operation failed to decode {field}: {why}{_MISSING}")
    return path


def _parts(path: str) -> Path:
    return _remembered(path) if len(path) <= _REMEMBERED_PATH else _split(path)


def _split(path: str) -> Path:
    parts = path.split("/")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in parts) if "~" in path else tuple(parts)


_remembered = lru_cache(maxsize=4096)(_split)


def _get(node: Json, key: str) -> Json:
    return node.get(key) if type(node) is dict else node[_index(node, key)]


def _item(items: list[Json], key: str) -> Json:
    """The element that a part of a path stands for, None if there is none."""
    try:
        return items[_index(items, key)]
    except PatchError:
        return None


def _index(items: list[Json], key: str) -> int:
    if _INDEX.fullmatch(key) is None or len(key) > _MAX_INDEX_DIGITS:
        raise PatchError(f'strconv.Atoi: parsing "{key}": invalid syntax')
    return _bounded(int(key), len(items))


def _bounded(index: int, length: int) -> int:
    if not -length <= index < length:
        raise PatchError(f"Unable to access invalid index: {index}: {_INVALID_INDEX}")
    return index + length if index < 0 else index
