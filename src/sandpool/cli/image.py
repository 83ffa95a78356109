"""`sandpool image`: the images of this machine, while the cluster runs or while it does not."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from sandpool.cli.durations import duration
from sandpool.cli.exits import FAILED, NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.image_table import rows, size, table
from sandpool.cli.node_flags import check_registries
from sandpool.cli.sizes import byte_count

if TYPE_CHECKING:
    from sandpool.node.images.options import ImageOptions
    from sandpool.node.images.port import Credential
    from sandpool.node.images.store import ImageStore

image = App(name="image", help="The images that sandboxes of this machine start from.")
_FOREVER = float("inf")


@image.command(name="import")
def import_(
    file: Annotated[Path, Parameter(help="An OCI layout (a folder or a tar of one) or what `docker save` wrote.")],
    name: Annotated[str, Parameter(help="What to call it; needed where the file does not say.")] = "",
    /,
    *,
    data_dir_: DataDirFlag = None,
) -> None:
    """Bring images in from a file, without a registry. Prints their names.

    Pods that name one get it as it is, whatever their pull policy; it stays until it is removed by name.
    """

    async def work() -> None:
        async with _store(data_dir_) as store:
            with _progress() as told:
                names = await store.import_archive(file.absolute(), name, told)
        for record in names:
            print(record.reference)

    asyncio.run(work())


@image.command
def pull(
    reference: Annotated[str, Parameter(help="For example python:3.12, or registry.example.com/team/tool:1.")],
    /,
    *,
    auth_file: Annotated[
        Path | None, Parameter(help="Logins, as in ~/.docker/config.json. Without it nobody is logged in.")
    ] = None,
    username: Annotated[str, Parameter(help="Log in as this user, with --password-stdin.")] = "",
    password_stdin: Annotated[bool, Parameter(negative="", help="Read the password from standard input.")] = False,
    registry: Annotated[
        tuple[str, ...],
        Parameter(
            negative="",
            help="HOST or HOST:PORT, beside the image's own registry and public ones, that it may redirect to or name as its token "
            "service; repeatable.",
        ),
    ] = (),
    insecure_registry: Annotated[
        tuple[str, ...], Parameter(negative="", help="HOST or HOST:PORT that may be asked over plain http; repeatable.")
    ] = (),
    data_dir_: DataDirFlag = None,
) -> None:
    """Pull an image from its registry, or look whether it has changed there. Prints its id.

    Every pod may use it afterwards, whatever login it took.
    """
    logins = _logins(reference, auth_file, username, password_stdin)
    check_registries(registry, insecure_registry)
    allowed = ("public", _registry(reference), *registry)

    async def work() -> None:
        async with _store(data_dir_, registries=allowed, insecure_registries=insecure_registry) as store:
            with _progress() as told:
                id_ = await store.pull(reference, logins, told)
        print(id_)

    asyncio.run(work())


@image.command(name="list")
def list_(*, output: OutputFlag = "table", data_dir_: DataDirFlag = None) -> None:
    """Show the images that are here: size, age, when they were used last, and which pods hold them."""

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
    """Remove images. One that a pod uses stays. Exits with 3 if there is none of that name."""
    if not references:
        raise Exit(USAGE, "say which image; `sandpool image list` shows those there are")

    async def work() -> None:
        from sandpool.node.images.upkeep import ImageHeld, ImageUnknown

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
    unused_for: Annotated[str, Parameter(help="Only images that nobody has used for so long, such as 24h.")] = "",
    max_size: Annotated[
        str, Parameter(help="Only as many, the longest unused first, that the rest is no larger, such as 20Gi.")
    ] = "",
    imported: Annotated[bool, Parameter(negative="", help="Imported images too, which no registry has.")] = False,
    data_dir_: DataDirFlag = None,
) -> None:
    """Remove images that no pod uses: all of them, or those that --unused-for and --max-size say. Prints what went."""
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
    """The images of the node of this data directory, which may run at the same time."""
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
    """On a terminal, one line that changes; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as shown:
        yield shown.update


def _logins(reference: str, auth_file: Path | None, username: str, password_stdin: bool) -> tuple[Credential, ...]:
    from sandpool.node.images.credentials import from_docker_config
    from sandpool.node.images.port import Credential

    if bool(username) != password_stdin:
        raise Exit(USAGE, "--username and --password-stdin go together")
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
