"""What overlayfs shows of a stack of folders, by its rules: for comparing where a mount is not at hand."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def merge(layers: list[Path]) -> dict[str, str]:
    """Lowest first. path -> "folder", "file CONTENT" or "link TARGET"."""
    tree: dict[str, str] = {}
    for layer in layers:
        if _opaque(layer):
            tree.clear()
        _put(tree, layer, "")
    return tree


def _put(tree: dict[str, str], folder: Path, prefix: str) -> None:
    for path in sorted(folder.iterdir()):
        name = prefix + path.name
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or _opaque(path) or tree.get(name, "folder") != "folder":
            for below in [one for one in tree if one == name or one.startswith(f"{name}/")]:
                del tree[below]
        if stat.S_ISCHR(found.st_mode):
            assert found.st_rdev == 0
        elif stat.S_ISDIR(found.st_mode):
            tree[name] = "folder"
            _put(tree, path, f"{name}/")
        else:
            tree[name] = f"link {os.readlink(path)}" if path.is_symlink() else f"file {path.read_text()}"


def _opaque(path: Path) -> bool:
    return any(name.endswith(".overlay.opaque") for name in os.listxattr(path))
