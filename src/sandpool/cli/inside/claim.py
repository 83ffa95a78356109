"""`sandpool claim`: a sandbox of a pool, to keep until it is released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster import Cluster, connected
from sandpool.cli.cluster_flags import ClusterFlags, Timeout, pairs, timeout_of
from sandpool.cli.completing import pools
from sandpool.cli.console import Console, Terminal
from sandpool.cli.durations import duration
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.failures import told
from sandpool.cli.inside.stopping import stoppable
from sandpool.cli.output.formats import Format, format_of, one
from sandpool.model.kinds import CLAIMS

if TYPE_CHECKING:
    from sandpool.sdk._sync.sandbox import Sandbox

FOREVER = 10.0 * 365 * 86400  # seconds
Labels = Annotated[
    tuple[str, ...], Parameter(name="--label", negative="", help="KEY=VALUE, a label of the claim; repeatable.")
]
Ttl = Annotated[
    str,
    Parameter(
        show_default=False, help="How long the sandbox lives at most, such as 90s, 30m or 2h. Default: for ever."
    ),
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
            if box is not None:  # nobody has heard its name
                give_back(box, console)
            raise
        box.close()  # this handle; the sandbox stays
        console.say(
            f"`sandpool exec {box.name} -- COMMAND` runs something in it, `sandpool release {box.name}` gives it back."
        )


def chosen(pool: str) -> str:
    """A pool as it was named on the command line."""
    if not pool:
        raise Exit(USAGE, "name a pool; `sandpool get pools` lists those there are")
    return pool


def give_back(box: Sandbox, console: Console) -> None:
    """What came before counts more than whether this succeeds."""
    try:
        box.release()
    except SandpoolError as error:
        console.say(
            f"sandpool: {box.name} could not be given back ({told(error)}); `sandpool release {box.name}` does it"
        )


def claim(
    pool: Annotated[str, Parameter(completer=pools, help="The pool.")],
    /,
    *,
    name: Annotated[
        str, Parameter(show_default=False, help="What to call the claim. Default: a name of the pool and chance.")
    ] = "",
    ttl: Ttl = "",
    label: Labels = (),
    timeout: Timeout = "30s",
    output: Annotated[
        str,
        Parameter(
            name=["--output", "-o"],
            show_default=False,
            help="Instead of the name: json, yaml, name or jsonpath=TEMPLATE.",
        ),
    ] = "",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Take a sandbox from a pool, and keep it. Prints the name of the claim when it is ready to be used.

    Exits with 3 if there is no such pool and with 4 if there is no sandbox in time; nothing is left behind then.
    """
    seconds = duration(ttl, "--ttl") if ttl else None
    shown = format_of(output) if output not in ("", "table", "wide") else None
    options = Claim(chosen(pool), name, pairs(label, "--label"), seconds, timeout_of(timeout), shown)
    with stoppable(), connected(where) as cluster:
        options.run(cluster, Terminal())
