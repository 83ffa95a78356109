"""A folder of this machine as a root file system, if the operator allows it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sandpool.base.errors import NodeError
from sandpool.node.images.image import Image, RootFs


def folder_image(reference: str, path: str, allowed: Sequence[Path]) -> Image:
    """Links are followed before it is compared with what is allowed, and the answer holds the folder that they lead to."""
    if not path.startswith("/") or "\0" in path:
        raise NodeError(
            "InvalidImageName", f"image {reference!r}: write dir: and an absolute path, as in dir:/srv/roots/debian"
        )
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in allowed):
        may = f"only folders below {', '.join(map(str, allowed))} may be used" if allowed else "no folder may be used"
        raise NodeError(
            "ErrImagePull",
            f"image {reference!r} is not allowed: {may}. Whoever starts the cluster decides that: `--allow-image-folder`",
        )
    if not real.is_dir():
        raise NodeError("ErrImagePull", f"image {reference!r}: {real} is not a folder; create it, or name another")
    return Image(reference, "", RootFs(layers=(real,)))
