"""`sandpool image`: manages the images of this machine, whether or not the cluster is running."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from sandpool.cli.exits import FAILED, NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.node_flags import check_registries
from sandpool.cli.units import byte_count, duration, size
from sandpool.model.times import human

if TYPE_CHECKING:
    from sandpool.node.images.garbage_collection import Listed
    from sandpool.node.images.image import Credential
    from sandpool.node.images.options import ImageOptions
    from sandpool.node.images.store import ImageStore


image = App(name="image", help="Manage the images that sandboxes on this machine start from.")
_FOREVER = float("inf")


@image.command(name="import")
def import_(
    file: Annotated[Path, Parameter(help="An OCI layout (a directory or its tar) or the output of `docker save`.")],
    name: Annotated[str, Parameter(help="The image's name; required if the file does not contain one.")] = "",
    /,
    *,
    data_dir_: DataDirFlag = None,
) -> None:
    """Import images from a file, without a registry. Prints their names.

    Pods use an imported image whatever their pull policy; it is kept until it is removed by name.
    """

    async def work() -> None:
        async with _store(data_dir_) as store:
            with _progress() as progress:
                names = await store.import_archive(file.absolute(), name, progress)
        for record in names:
            print(record.reference)

    asyncio.run(work())


@image.command
def pull(
    reference: Annotated[str, Parameter(help="For example python:3.12, or registry.example.com/team/tool:1.")],
    /,
    *,
    auth_file: Annotated[
        Path | None, Parameter(help="Logins, in the format of ~/.docker/config.json. Default: no login.")
    ] = None,
    username: Annotated[str, Parameter(help="Log in as this user, with --password-stdin.")] = "",
    password_stdin: Annotated[bool, Parameter(negative="", help="Read the password from standard input.")] = False,
    registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="HOST or HOST:PORT, in addition to the image's own registry and public ones, that it may redirect to or name as its token "
            "service; repeatable.",
        ),
    ] = (),
    insecure_registry: Annotated[
        tuple[str, ...], Parameter(negative="", help="HOST or HOST:PORT that may be used over plain HTTP; repeatable.")
    ] = (),
    data_dir_: DataDirFlag = None,
) -> None:
    """Pull an image from its registry, or check whether it has changed there. Prints its id.

    Every pod may use it afterwards, whatever login it took.
    """
    logins = _logins(reference, auth_file, username, password_stdin)
    check_registries(registry, insecure_registry)
    allowed = ("public", _registry(reference), *registry)

    async def work() -> None:
        async with _store(data_dir_, registries=allowed, insecure_registries=insecure_registry) as store:
            with _progress() as progress:
                id_ = await store.pull(reference, logins, progress)
        print(id_)

    asyncio.run(work())


@image.command(name="list")
def list_(*, output: OutputFlag = "table", data_dir_: DataDirFlag = None) -> None:
    """List images: size, age, last use, and which pods use them."""

    async def work() -> None:
        async with _store(data_dir_) as store:
            found = await store.listed()
        if output == "json":
            print(msgspec.json.encode(rows(found)).decode())
        else:
            print(table(found, time.time()), end="")

    asyncio.run(work())


@image.command
def remove(
    *references: Annotated[str, Parameter(help="A name, an id (sha256:...) or the start of one.")],
    data_dir_: DataDirFlag = None,
) -> None:
    """Remove images. An image that a pod uses is kept. Exits with 3 if there is no such image."""
    if not references:
        raise Exit(USAGE, "name an image; `sandpool image list` shows the existing ones")

    async def work() -> None:
        from sandpool.node.images.garbage_collection import ImageHeld, ImageUnknown

        async with _store(data_dir_) as store:
            for reference in references:
                try:
                    removed = await store.remove(reference)
                except ImageUnknown as error:
                    raise Exit(NOT_FOUND, str(error)) from error
                except ImageHeld as error:
                    raise Exit(FAILED, str(error)) from error
                print("\n".join(removed.images))

    asyncio.run(work())


@image.command
def prune(
    *,
    unused_for: Annotated[str, Parameter(help="Only images that have not been used for this long, such as 24h.")] = "",
    max_size: Annotated[
        str, Parameter(help="Remove the longest unused images until the rest is at most this large, such as 20Gi.")
    ] = "",
    imported: Annotated[
        bool, Parameter(negative="", help="Also remove imported images, which no registry has.")
    ] = False,
    data_dir_: DataDirFlag = None,
) -> None:
    """Remove images that no pod uses: all of them, or those selected by --unused-for and --max-size. Prints their names."""
    seconds = duration(unused_for, "--unused-for", zero=True) if unused_for else _FOREVER if max_size else 0.0
    most = byte_count(max_size, "--max-size") if max_size else sys.maxsize

    async def work() -> None:
        from sandpool.node.images.prune import PruneRules

        async with _store(data_dir_) as store:
            removed = await store.prune(PruneRules(seconds, most, imported))
        for name in removed.images:
            print(name)
        print(f"{len(removed.images)} removed, {size(removed.bytes)} freed", file=sys.stderr)

    asyncio.run(work())


@asynccontextmanager
async def _store(flag: Path | None, **options: Any) -> AsyncIterator[ImageStore]:
    """The image store of this data directory; its cluster may be running."""
    from urllib.request import getproxies

    from sandpool.base.clock import SystemClock
    from sandpool.base.errors import NodeError
    from sandpool.node.directory import images_of
    from sandpool.node.images.options import ImageOptions
    from sandpool.node.images.store import ImageStore

    directory = data_dir(flag)
    directory.prepare()
    chosen: ImageOptions = ImageOptions(proxies=getproxies(), unused_for=_FOREVER, max_bytes=sys.maxsize, **options)
    store = ImageStore(images_of(directory.node), SystemClock(), chosen)
    try:
        await store.open()
        try:
            yield store
        finally:
            await store.close()
    except NodeError as error:
        raise Exit(USAGE if error.reason == "InvalidImageName" else FAILED, error.message) from error


@contextmanager
def _progress() -> Iterator[Callable[[str], object]]:
    """Progress: one changing line on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as shown:
        yield shown.update


def _logins(reference: str, auth_file: Path | None, username: str, password_stdin: bool) -> tuple[Credential, ...]:
    from sandpool.node.images.credentials import from_docker_config
    from sandpool.node.images.image import Credential

    if bool(username) != password_stdin:
        raise Exit(USAGE, "use --username and --password-stdin together")
    if auth_file is not None:
        try:
            return from_docker_config(auth_file.read_bytes())
        except ValueError as error:
            raise Exit(USAGE, f"--auth-file {auth_file}: {error}") from error
    if username:
        return (Credential(_registry(reference), username, sys.stdin.readline().rstrip("\r\n")),)
    return ()


def _registry(reference: str) -> str:
    from sandpool.base.errors import NodeError
    from sandpool.node.images.reference import parse_name

    try:
        return parse_name(reference).registry
    except NodeError as error:
        raise Exit(USAGE, error.message) from error


_HEADERS = ("NAME", "ID", "SIZE", "AGE", "USED", "HOLDERS")
_NAMED = 3  # holders that are named; further ones are counted


def rows(images: Sequence[Listed]) -> list[dict[str, Any]]:
    """The images as JSON."""
    return [asdict(one) | {"at": _moment(one.at), "used_at": _moment(one.used_at)} for one in images]


def table(images: Sequence[Listed], now: float) -> str:
    """The images as a table, one line per name."""
    lines = [_HEADERS]
    for one in images:
        facts = (one.id[7:19], size(one.bytes), human(int(now - one.at)), human(int(now - one.used_at)), _holders(one))
        lines += [(name, *facts) for name in one.names or ("<none>",)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADERS))]
    return "".join(
        "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def _holders(one: Listed) -> str:
    named = ", ".join(one.holders[:_NAMED])
    return f"{named} and {len(one.holders) - _NAMED} more" if len(one.holders) > _NAMED else named


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
