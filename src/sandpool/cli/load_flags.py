"""Flags of `sandpool load` that all shapes share: the cluster, the pool, what happens to a claim, and the report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sandpool.cli.exits import NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, OutputFlag, data_dir
from sandpool.cli.units import duration

if TYPE_CHECKING:
    from sandpool.load.run import Where
    from sandpool.load.stage import Wanted


@Parameter(name="*")
@dataclass(frozen=True)
class ClusterFlags:
    kubeconfig: Annotated[
        Path | None,
        Parameter(show_default=False, help="Load the cluster of this kubeconfig. Default: the local cluster."),
    ] = None
    context: Annotated[str, Parameter(help="A context of --kubeconfig. Default: its current one.")] = ""
    fresh: Annotated[
        bool,
        Parameter(negative="", help="Load a temporary local cluster, in its own process, removed afterwards."),
    ] = False
    backend: Annotated[
        Literal["namespaces", "gvisor", "process", "fake", "hollow"],
        Parameter(help="Backend of the --fresh cluster. fake (or hollow): pods become Ready, but no process starts."),
    ] = "hollow"
    data_dir_: DataDirFlag = None
    metrics: Annotated[
        tuple[str, ...],
        Parameter(negative="", help="A controller's metrics URL, such as http://127.0.0.1:8080/metrics."),
    ] = ()
    audit_log: Annotated[
        Path | None,
        Parameter(show_default=False, help="Count requests from this kube-apiserver audit log (JSON lines)."),
    ] = None
    audit_user: Annotated[str, Parameter(help="The user in the audit log whose requests are the controllers'.")] = ""

    def where(self) -> Where:
        from sandpool.load.run import Where

        if self.fresh:
            if self.kubeconfig or self.data_dir_:
                raise Exit(USAGE, "--fresh starts its own cluster; leave out --kubeconfig and --data-dir")
            return Where(fresh=self.backend, metrics=self.metrics)
        if self.kubeconfig is not None:
            return Where(kubeconfig=self.kubeconfig.expanduser().absolute(), context=self.context, metrics=self.metrics)
        if self.context:
            raise Exit(USAGE, f"--context {self.context}: name its file with --kubeconfig")
        directory = data_dir(self.data_dir_)
        running = directory.read_running()
        if running is None:
            raise Exit(
                NOT_FOUND,
                f"no cluster is running in {directory.root}. Use --fresh for a temporary one, --kubeconfig for another, or start "
                "one with `sandpool up`",
            )
        if running.backend == "none":
            raise Exit(USAGE, "the local cluster runs with --backend none: nothing acts on claims; use --fresh")
        return Where(running=running, metrics=self.metrics)


@Parameter(name="*")
@dataclass(frozen=True)
class PoolFlags:
    pool_size: Annotated[
        int | None,
        Parameter(
            show_default=False,
            help="Size of the pool created for the run. Default: twice a burst, two seconds of a rate, 1000 for a ramp.",
        ),
    ] = None
    pool: Annotated[str, Parameter(help="Use this existing pool; it is not changed.")] = ""
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"], help="Namespace of --pool.")] = "default"
    image: Annotated[
        str, Parameter(help="Image of the sandboxes. host: the programs of a local cluster's machine.")
    ] = ""
    runtime_class: Annotated[str, Parameter(help="runtimeClassName of the sandboxes.")] = ""

    def wanted(self, run: str, natural: int, local: bool, disposable: bool) -> Wanted:
        """`natural` is the size that fits the shape."""
        from sandpool.load.stage import Wanted

        if self.pool:
            if self.pool_size is not None or self.image or self.runtime_class:
                raise Exit(USAGE, "--pool names a pool that exists; leave out --pool-size, --image and --runtime-class")
            return Wanted(run, pool=self.pool, namespace=self.namespace)
        if self.namespace != "default":
            raise Exit(USAGE, "--namespace says where --pool is; without --pool the run creates its own namespace")
        size = natural if self.pool_size is None else self.pool_size
        if not 0 <= size <= 1_000_000:
            raise Exit(USAGE, f"--pool-size {size}: choose from 0 to 1000000")
        if not self.image and not local:
            raise Exit(USAGE, "with --kubeconfig, give an --image for the sandboxes, or an existing --pool")
        command = ("sleep", "infinity") if not self.image or self.image == "host" else ()
        return Wanted(
            run,
            size=size,
            image=self.image or "host",
            command=command,
            runtime_class=self.runtime_class,
            disposable=disposable,
        )


@Parameter(name="*")
@dataclass(frozen=True)
class WorkFlags:
    dwell: Annotated[
        str,
        Parameter(
            help="How long to keep a claim once Ready, such as 500ms; `end`: until the end of the run. Default: end for bursts, else 1s."
        ),
    ] = ""
    exec_: Annotated[
        str, Parameter(name="--exec", help="Run this command in each sandbox, and measure until its first output.")
    ] = ""
    files: Annotated[
        str,
        Parameter(help="Write a file of this size, such as 64Ki, into each sandbox and read it back; at most 64Mi."),
    ] = ""
    router: Annotated[
        str, Parameter(help="The router's address, for --exec and --files. Default: the local cluster's own.")
    ] = ""
    timeout: Annotated[
        str, Parameter(help="A claim that was admitted but is not Ready after this long has failed.")
    ] = "60s"
    fill_timeout: Annotated[str, Parameter(help="How long the pool may take to become full.")] = "5m"
    clean_timeout: Annotated[str, Parameter(help="How long the cleanup after the run may take.")] = "2m"
    connections: Annotated[
        int, Parameter(help="Most connections for creating claims; half as many for releasing them.")
    ] = 256
    watch_sandboxes: Annotated[
        bool, Parameter(help="Also watch sandboxes: how full the pool is, and exactly which claims were warm.")
    ] = True

    def dwelling(self, usual: float | None) -> float | None:
        if not self.dwell:
            return usual
        return None if self.dwell == "end" else duration(self.dwell, "--dwell", zero=True)

    def file_size(self) -> int:
        """In bytes; 0 without --files."""
        from sandpool.load.router_work import LARGEST
        from sandpool.model.quantities import parse

        if not self.files:
            return 0
        try:
            size = parse(self.files)
        except ValueError:
            raise Exit(USAGE, f"--files {self.files}: write a size, such as 4096, 64Ki or 1Mi") from None
        if not 1 <= size.value <= LARGEST:
            raise Exit(USAGE, f"--files {self.files}: choose from 1 to 64Mi")
        return size.value

    def check(self) -> None:
        self.file_size()
        if not 1 <= self.connections <= 10_000:
            raise Exit(USAGE, f"--connections {self.connections}: choose from 1 to 10000")


@Parameter(name="*")
@dataclass(frozen=True)
class ReportFlags:
    output: OutputFlag = "table"
    html: Annotated[Path | None, Parameter(show_default=False, help="Write an HTML page with plots to this file.")] = (
        None
    )
    raw: Annotated[
        Path | None, Parameter(show_default=False, help="Record every claim as a line of JSON, to compare and replay.")
    ] = None
    note: Annotated[str, Parameter(help="A sentence about the conditions, kept in the report.")] = ""
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", help="No progress on stderr.")] = False

    def check(self) -> None:
        """Checked before the run, so that a missing directory does not lose its results."""
        for flag, path in (("--html", self.html), ("--raw", self.raw)):
            if path is not None and not path.expanduser().absolute().parent.is_dir():
                raise Exit(
                    USAGE, f"{flag} {path}: there is no directory {path.parent}; create it, or choose another file"
                )
