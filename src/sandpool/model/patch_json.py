"""Applies JSON patches (RFC 6902) as an API server does, with the peculiarities of its Go library:

- an index may be negative and then counts from the end;
- `replace` of an absent member adds it, `copy` of one adds null;
- `test` of an absent member against null, or against no value, succeeds. Claiming a sandbox depends on this one.

Copy-on-write: each container on the path to a change is copied once per patch, and again after a `copy`. The cost of that and of moving
large values is bounded for each patch, because applying one blocks the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from sandpool.model.documents import MAX_DEPTH, BadPatch, Json, PatchError, PatchTooLarge, extent, go_kind, same

MAX_OPERATIONS = 10_000
MAX_COPIED_BYTES = 3 * 1024 * 1024
MAX_WORK = 500_000  # values that one patch may visit or copy: less than a tenth of a second
_SHIFTED = 128  # list elements that are shifted in the time of one such value
_INDEX = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MAX_INDEX_DIGITS = 18
_REMEMBERED_PATH = 256  # characters; writers use the same few paths again and again, and those are short
_TEXTS = ("op", "path", "from")
_TEST = "test failed"
_MISSING = "missing value"
_INVALID_INDEX = "invalid index referenced"
_CONTAINERS = (dict, list)

Operation = dict[str, Any]
Where = tuple[str, ...]
"""The parts of a path to a container, unescaped. The first one is empty in a valid path, and is ignored."""
Path = tuple[Where, str]
"""The path of a container, and the member of it that an operation refers to."""


def apply_json_patch(doc: Json, operations: Json) -> Json:
    """The document with all operations applied in order. If one fails, it raises and the document is unchanged."""
    if type(operations) is not list or len(operations) > MAX_OPERATIONS:
        check_operations(operations)
    run = _Run(doc)
    checked = False
    try:
        for operation in operations:
            if not checked and (type(operation) is not dict or "from" in operation or "op" not in operation):
                check_operations(operations)
                checked = True
            name = operation["op"] if operation and "op" in operation else None
            step = _STEPS.get(name) if type(name) is str else None
            if step is None:
                raise PatchError(f"Unexpected kind: {'unknown' if name is None else name}")
            step(run, operation)
            if run.work > MAX_WORK:
                raise PatchTooLarge("the JSON patch copies or moves too large a part of the object too often")
    except PatchError:
        check_operations(operations)  # an invalid patch is reported before one that does not fit the document
        raise
    return run.doc


def check_operations(operations: Json) -> None:
    """Refuses what is not a valid JSON patch for any document."""
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

    __slots__ = ("_ours", "copied", "doc", "last", "where", "work")

    def __init__(self, doc: Json) -> None:
        self.doc = doc
        self.copied = 0
        self.work = 0  # values visited or copied
        self._ours: dict[int, Json] = {}  # keeps each copy alive, so that its id is not reused
        # The container written to last, because the next operation often refers to the same one. Nothing else has been
        # written to since, so it is still at that path.
        self.where: Where | None = None
        self.last: Json = None

    def find(self, where: Where) -> Json:
        """Finds a container for reading; None if there is none."""
        node = self.doc if where else None
        for part in where[1:]:
            if type(node) is dict:
                node = node.get(part)
            elif type(node) is list:
                node = _item(node, part)
            else:
                return None
        return node if type(node) in _CONTAINERS else None

    def own(self, where: Where) -> Json:
        """Finds a container for writing, copying containers on the path; None if there is none. Copies made before that is known do no harm."""
        node, ours = self.doc, self._ours
        if not where or type(node) not in _CONTAINERS:
            return None
        if id(node) not in ours:
            self.doc = node = node.copy()
            ours[id(node)] = node
            self.work += len(node)
        for part in where[1:]:
            key: Any = part
            child: Json
            if type(node) is dict:
                child = node.get(part)
            else:
                child = _item(node, part)
                key = 0 if child is None else _index(node, part)
            if type(child) not in _CONTAINERS:
                return None
            if id(child) not in ours:
                node[key] = child = child.copy()
                ours[id(child)] = child
                self.work += len(child)
            node = child
        self.where, self.last = where, node
        return node

    def share(self) -> None:
        """Call when a part of the document now appears in two places: containers must be copied again before a change."""
        self._ours.clear()
        self.where = None

    def replace(self, doc: Json) -> None:
        self.doc = doc
        self.where = None


def _insert(run: _Run, node: Json, where: Where, key: str, value: Json) -> None:
    """Adds a value to a container that is already a copy."""
    check_depth(run, where, key, value)
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
        run.work += len(node) // _SHIFTED


def _delete(run: _Run, node: Json, key: str) -> None:
    if type(node) is list:
        del node[_index(node, key)]
        run.work += len(node) // _SHIFTED
    elif key in node:
        del node[key]
    else:
        raise PatchError(f"Unable to remove nonexistent key: {key}: {_MISSING}")


def check_depth(run: _Run, where: Where, key: str, value: Json) -> None:
    depth, seen = extent(value)
    run.work += seen
    if len(where) + depth > MAX_DEPTH:
        raise PatchError(f"the document would nest deeper than {MAX_DEPTH} levels at {'/'.join((*where, key))}")


def _add(run: _Run, operation: Operation) -> None:
    text = operation.get("path")
    if type(text) is not str:
        text = _text(operation, "add")  # which raises
    where, key = _remembered(text) if len(text) <= _REMEMBERED_PATH else _split(text)
    node, value = run.last if where == run.where else run.own(where), operation.get("value")
    if (
        type(node) is dict and type(value) is str and len(where) < MAX_DEPTH
    ):  # the common case: a label or an annotation
        node[key] = value
        return
    if node is None:
        raise PatchError(f'add operation does not apply: doc is missing path: "{text}": {_MISSING}')
    try:
        _insert(run, node, where, key, value)
    except PatchError as error:
        raise PatchError(f"error in add for path: '{text}': {error}") from None


def _remove(run: _Run, operation: Operation) -> None:
    text = operation.get("path")
    if type(text) is not str:
        text = _text(operation, "remove")  # which raises
    where, key = _remembered(text) if len(text) <= _REMEMBERED_PATH else _split(text)
    node = run.last if where == run.where else run.own(where)
    if type(node) is dict and key in node:
        del node[key]
        return
    if node is None:
        raise PatchError(f'remove operation does not apply: doc is missing path: "{text}": {_MISSING}')
    try:
        _delete(run, node, key)
    except PatchError as error:
        raise PatchError(f"error in remove for path: '{text}': {error}") from None


def _replace(run: _Run, operation: Operation) -> None:
    text, value = _text(operation, "replace"), operation.get("value")
    where, key = _parts(text)
    if text == "":
        if type(value) not in _CONTAINERS:
            raise PatchError("replace operation value must be object or array")
        check_depth(run, where, key, value)
        run.replace(value)
        return
    node = run.own(where)
    if node is None:
        raise PatchError(f"replace operation does not apply: doc is missing path: {text}: {_MISSING}")
    check_depth(run, where, key, value)
    if type(node) is dict:
        node[key] = value
        return
    try:
        index = _index(node, key)
    except PatchError:
        raise PatchError(f"replace operation does not apply: doc is missing key: {text}: {_MISSING}") from None
    node[index] = value


def _move(run: _Run, operation: Operation) -> None:
    source = _text(operation, "move", "from")
    where, key = _parts(source)
    node = run.find(where)
    if node is None:
        raise PatchError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
    try:
        value = _get(node, key)
        _delete(run, run.own(where), key)
    except PatchError as error:
        raise PatchError(f"error in move for path: '{key}': {error}") from None
    text = _text(operation, "move")
    where, key = _parts(text)
    node = run.own(where)
    if node is None:
        raise PatchError(f"move operation does not apply: doc is missing destination path: {text}: {_MISSING}")
    try:
        _insert(run, node, where, key, value)
    except PatchError as error:
        raise PatchError(f"error in move for path: '{text}': {error}") from None


def _copy(run: _Run, operation: Operation) -> None:
    source = _text(operation, "copy", "from")
    where, key = _parts(source)
    node = run.find(where)
    if node is None:
        raise PatchError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
    try:
        value = _get(node, key)
    except PatchError as error:
        raise PatchError(f"error in copy for from: '{source}': {error}") from None
    text = _text(operation, "copy")
    where, key = _parts(text)
    if run.find(where) is None:
        raise PatchError(f"copy operation does not apply: doc is missing destination path: {text}: {_MISSING}")
    # A shared copy costs no memory, but it does when the object is encoded: a few copies of copies could make that huge.
    run.copied += len(msgspec.json.encode(value))
    if run.copied > MAX_COPIED_BYTES:
        raise PatchError(
            "Unable to complete the copy, the accumulated size increase of copy is "
            f"{run.copied}, exceeding the limit {MAX_COPIED_BYTES}"
        )
    run.share()
    try:
        _insert(run, run.own(where), where, key, value)
    except PatchError as error:
        raise PatchError(f"error while adding value during copy: {error}") from None


def _test(run: _Run, operation: Operation) -> None:
    text, value = operation.get("path"), run.doc
    if type(text) is not str:
        text = _text(operation, "test")  # which raises
    if text != "":
        where, key = _remembered(text) if len(text) <= _REMEMBERED_PATH else _split(text)
        node = run.find(where)
        if node is None:
            raise PatchError(f"test operation does not apply: is missing path: {text}: {_MISSING}")
        try:
            value = node.get(key) if type(node) is dict else node[_index(node, key)]
        except PatchError as error:
            raise PatchError(f"error in test for path: '{text}': {error}") from None
    wanted = operation.get("value")
    if type(value) is str and type(wanted) is str and value == wanted:  # the common case: a uid
        return
    if not same(value, wanted):
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
    path = operation.get(field)
    if type(path) is not str:
        terse = field == "path" and name in ("add", "remove", "copy")
        why = "" if terse else f"operation{',' if field == 'from' else ''} missing {field} field: "
        raise PatchError(f"{name} operation failed to decode {field}: {why}{_MISSING}")
    return path


def _parts(path: str) -> Path:
    return _remembered(path) if len(path) <= _REMEMBERED_PATH else _split(path)


def _split(path: str) -> Path:
    parts = path.split("/")
    if "~" in path:
        parts = [part.replace("~1", "/").replace("~0", "~") for part in parts]
    return tuple(parts[:-1]), parts[-1]


_remembered = lru_cache(maxsize=4096)(_split)


def _get(node: Json, key: str) -> Json:
    return node.get(key) if type(node) is dict else node[_index(node, key)]


def _item(items: list[Json], key: str) -> Json:
    """The list element that a part of a path refers to; None if there is none."""
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
