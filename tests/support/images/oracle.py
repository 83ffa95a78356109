"""What the layers of an image add up to, read naively: one tree in memory, one entry after the other."""

from __future__ import annotations

import tarfile

from support.images.files import Entry

Tree = dict[str, str]  # path -> "folder", "file CONTENT" or "link TARGET"


class Refused(Exception):
    """An entry goes through something of its own layer that is not a folder."""


def merged_by_oracle(layers: list[list[Entry]]) -> Tree:
    tree: Tree = {}
    for entries in layers:
        own: set[str] = set()  # what this layer has put there
        for entry in entries:
            _apply(tree, own, entry)
    return tree


def _apply(tree: Tree, own: set[str], entry: Entry) -> None:
    path = entry.path
    above, _, name = path.rpartition("/")
    if name.startswith(".wh."):
        _make_folders(tree, own, above)
        if name == ".wh..wh..opq":
            _drop(tree, own, f"{above}/" if above else "", spare_own=True)
        else:
            target = f"{above}/{name[4:]}" if above else name[4:]
            if target not in own:
                tree.pop(target, None)
            _drop(tree, own, f"{target}/", spare_own=True)
        return
    _make_folders(tree, own, above)
    if entry.kind == tarfile.DIRTYPE:
        if tree.get(path) != "folder":
            tree[path] = "folder"
    else:
        _drop(tree, own, f"{path}/", spare_own=False)
        tree[path] = f"link {entry.link}" if entry.kind == tarfile.SYMTYPE else f"file {entry.content.decode()}"
    own.add(path)


def _make_folders(tree: Tree, own: set[str], path: str) -> None:
    parts = path.split("/") if path else []
    for depth in range(1, len(parts) + 1):
        folder = "/".join(parts[:depth])
        if tree.get(folder) != "folder":
            if folder in own:
                raise Refused
            tree[folder] = "folder"  # whatever a lower layer had there is hidden
        own.add(folder)


def _drop(tree: Tree, own: set[str], prefix: str, *, spare_own: bool) -> None:
    for path in [path for path in tree if path.startswith(prefix) and not (spare_own and path in own)]:
        del tree[path]
        own.discard(path)
