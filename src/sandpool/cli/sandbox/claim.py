"""`sandpool claim`: claims a sandbox from a pool and keeps it until it is released."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, pairs, timeout_of
from sandpool.cli.completion import pools
from sandpool.cli.console import Console, Terminal
from sandpool.cli.error_messages import describe_error
from sandpool.cli.exits import SIGNALLED, USAGE, Exit
from sandpool.cli.output.formats import Format, format_of, one
from sandpool.cli.units import duration
from sandpool.model.kinds import CLAIMS

if TYPE_CHECKING:
    from sandpool.sdk._sync.sandbox import Sandbox

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, _: FrameType | None) -> None:
    raise Exit(SIGNALLED + number)


FOREVER = 10.0 * 365 * 86400  # seconds
Labels = Annotated[
    tuple[str, ...], Parameter(name="--label", negative="", help="KEY=VALUE, a label for the claim; repeatable.")
]
Ttl = Annotated[
    str,
    Parameter(show_default=False, help="Delete the sandbox after this time, such as 90s, 30m or 2h. Default: never."),
]


@dataclass(frozen=True, slots=True)
class Claim:
    pool: str
    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ttl: float | None = None
    timeout: float | None = 30.0
    format: Format | None = None  # None: the bare name

    def run(self, cluster: Cluster, console: Console) -> None:
        from sandpool.sdk._sync.sandbox import Sandbox

        box = None
        try:
            with console.progress(f"waiting for a sandbox of pool {self.pool}"):
                box = Sandbox.claim(
                    self.pool,
                    name=self.name or None,
                    labels=self.labels,
                    ttl=self.ttl,
                    timeout=self.timeout or FOREVER,
                    connection=cluster.connection,
                )
            if self.format is None:
                console.write(f"{box.name}\n")
            else:
                console.write(one(CLAIMS, cluster.get(CLAIMS, box.namespace, box.name), self.format))
        except BaseException:
            if box is not None:  # its name was not printed
                give_back(box, console)
            raise
        box.close()  # this handle; the sandbox stays
        console.say(
            f"`sandpool exec {box.name} -- COMMAND` runs something in it, `sandpool release {box.name}` releases it."
        )


def chosen(pool: str) -> str:
    """A pool as it was named on the command line."""
    if not pool:
        raise Exit(USAGE, "name a pool; `sandpool get pools` lists the existing ones")
    return pool


def give_back(box: Sandbox, console: Console) -> None:
    """Reports a failure on stderr only, because the first error counts."""
    try:
        box.release()
    except SandpoolError as error:
        console.say(
            f"sandpool: {box.name} could not be released ({describe_error(error)}); `sandpool release {box.name}` does it"
        )


def claim(
    pool: Annotated[str, Parameter(completer=pools, help="The pool.")],
    /,
    *,
    name: Annotated[
        str, Parameter(show_default=False, help="Name of the claim. Default: the pool's name plus a random suffix.")
    ] = "",
    ttl: Ttl = "",
    label: Labels = (),
    timeout: Timeout = "30s",
    output: Annotated[
        str,
        Parameter(
            name=["--output", "-o"],
            show_default=False,
            help="Print this instead of the name: json, yaml, name or jsonpath=TEMPLATE.",
        ),
    ] = "",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Claim a sandbox from a pool and keep it. Prints the claim's name when the sandbox is ready.

    Exits with 3 if there is no such pool and with 4 if no sandbox is ready in time; then the claim is deleted.
    """
    seconds = duration(ttl, "--ttl") if ttl else None
    shown = format_of(output) if output not in ("", "table", "wide") else None
    options = Claim(chosen(pool), name, pairs(label, "--label"), seconds, timeout_of(timeout), shown)
    with stoppable(), connected(where) as cluster:
        options.run(cluster, Terminal())
