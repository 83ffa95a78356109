"""`sandpool cp`: copies files and directories into and out of a sandbox."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.completion import claims
from sandpool.cli.console import Console, Terminal
from sandpool.cli.exits import FAILED, NOT_FOUND, USAGE, Exit
from sandpool.cli.objects.resolve import plane_of
from sandpool.cli.sandbox.arguments import STANDARD, Place, pair
from sandpool.cli.units import byte_count, size

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

    from sandpool.sdk._sync.files import Files
    from sandpool.sdk.values import Transfer

_THERE = "NAME:PATH in a sandbox"
_OFTEN = 0.1  # seconds between updates of the progress


@dataclass(frozen=True, slots=True)
class Copy:
    source: Place
    target: Place
    max_bytes: int | None = None

    def validate(self) -> None:
        if self.max_bytes is not None and self.target.inside:
            raise Exit(USAGE, "--max-size is for copies out of a sandbox; leave it out")
        here = self.source.path
        if not self.source.inside and here != STANDARD and not os.path.lexists(here):
            raise Exit(NOT_FOUND, f"there is no file or directory {here!r} on this machine; check the path")

    def run(self, cluster: Cluster, console: Console) -> None:
        from sandpool.sdk._sync.files import Files

        inside = self.source if self.source.inside else self.target
        files = Files(plane_of(cluster, inside.name))
        # Progress prevents sendfile(2), so only if somebody sees it.
        shown = (
            console.progress(f"copying {self.source} to {self.target}")
            if sys.stderr.isatty()
            else nullcontext(_nothing)
        )
        with shown as update, _limited(self.max_bytes):
            progress = None if update is _nothing else _progress(update, f"{self.source} to {self.target}")
            moved = self._upload(files, progress) if self.target.inside else self._download(files, progress)
        for name in moved.skipped if moved is not None else ():
            console.say(f"left out: {name}")

    def _upload(self, files: Files, progress: Callable[[int, int], None] | None) -> Transfer | None:
        if self.source.path == STANDARD:
            files.write(self.target.path, sys.stdin.buffer)
            return None
        path = self.target.path
        if _into(self.source.path, path, directory=lambda: _remote_folder(files, path)):
            path = f"{path.rstrip('/')}/{_base(self.source.path)}"
        return files.upload(self.source.path, path, progress=progress)

    def _download(self, files: Files, progress: Callable[[int, int], None] | None) -> Transfer | None:
        if self.target.path == STANDARD:
            sys.stdout.flush()
            files.read_into(self.source.path, sys.stdout.buffer, max_bytes=self.max_bytes)
            return None
        path = self.target.path
        if _into(self.source.path, path, directory=lambda: os.path.isdir(path)):
            path = os.path.join(path, _base(self.source.path))
        return files.download(self.source.path, path, progress=progress, max_bytes=self.max_bytes)


@contextmanager
def _limited(max_bytes: int | None) -> Iterator[None]:
    """The SDK's error names its own parameter, not our flag."""
    from sandpool.sdk.errors import FileTooLarge

    try:
        yield
    except FileTooLarge as error:
        raise Exit(FAILED, f"{error.path!r} has more than {max_bytes} bytes; raise --max-size") from error


def _into(source: str, target: str, *, directory: Callable[[], bool]) -> bool:
    """As cp does: a target that is a directory gets the source under its own name; `dir/.` means only its content."""
    if source.rstrip("/").endswith("/.") or source.rstrip("/") in (".", "..", ""):
        return False
    return target.endswith("/") or directory()


def _remote_folder(files: Files, path: str) -> bool:
    from sandpool.sdk.errors import FileNotFound

    try:
        return files.stat(path).is_dir
    except FileNotFound:
        return False


def _base(path: str) -> str:
    return os.path.basename(path.rstrip("/"))


def _nothing(text: str) -> None: ...


def _progress(update: Callable[[str], None], what: str) -> Callable[[int, int], None]:
    last = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _OFTEN:
            last = now
            update(f"{what}: {size(done)}" + (f" of {size(total)}" if total else ""))

    return progress


def _places(context: CompletionContext) -> list[str]:
    return [f"{name}:" for name in claims(context)]


def cp(
    source: Annotated[
        str, Parameter(completer=_places, allow_leading_hyphen=True, help=f"PATH here, or {_THERE}; -: standard input.")
    ],
    target: Annotated[
        str,
        Parameter(completer=_places, allow_leading_hyphen=True, help=f"PATH here, or {_THERE}; -: standard output."),
    ],
    /,
    *,
    max_size: Annotated[
        str,
        Parameter(
            show_default=False,
            help="When copying out of a sandbox: copy at most this much, such as 10Gi. Default: any size.",
        ),
    ] = "",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Copy a file or a directory into or out of a sandbox. NAME is a claim, or sandbox/NAME.

    Works like cp: a target that is a directory, or ends with a slash, gets the source under its own name; `dir/.` is the content of
    the directory. Parent directories of the target are created. Relative paths in a sandbox start at its home.
    """
    options = Copy(*pair(source, target), byte_count(max_size, "--max-size") if max_size else None)
    options.validate()
    with connected(where) as cluster:
        options.run(cluster, Terminal())
