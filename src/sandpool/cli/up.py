"""`sandpool up`: starts a cluster on this machine, in the foreground or detached."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from sandpool.cli import restart
from sandpool.cli.default_flags import DefaultFlags
from sandpool.cli.exits import FAILED, OUT_OF_MEMORY, TIMED_OUT, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, data_dir
from sandpool.cli.http import answers
from sandpool.cli.node_flags import NOTICES, NodeFlags, unheld_notice
from sandpool.controlplane.data_dir import DataDir, in_use
from sandpool.kube.local_discovery import Running

if TYPE_CHECKING:
    from sandpool.app.local_options import LocalOptions
    from sandpool.controllers.claim.backlog import Bounds
    from sandpool.controlplane.objects.holdings import HoldingLimits
    from sandpool.install.first_pool import FirstPools
    from sandpool.telemetry.trace import Tracer


@Parameter(name="*")
@dataclass(frozen=True)
class DamageFlags:
    accept_loss: Annotated[
        bool,
        Parameter(
            negative="",
            help="Start with what is left of a damaged data directory. The damaged files are kept in a subdirectory.",
        ),
    ] = False

    def arguments(self) -> list[str]:
        """These flags as arguments, for the detached process."""
        return ["--accept-loss"] if self.accept_loss else []


MOST = 10**9
SMALLEST, LARGEST = "1Mi", "1Ti"


@Parameter(name="*")
@dataclass(frozen=True)
class ShareFlags:
    max_sandboxes: Annotated[int, Parameter(help="Most sandboxes, and most pods, in all namespaces together.")] = 20_000
    max_objects: Annotated[int, Parameter(help="Most objects in all namespaces together.")] = 100_000
    max_stored_bytes: Annotated[
        str, Parameter(help="Most bytes of those objects, such as 256Mi. All of them are kept in memory.")
    ] = "256Mi"

    max_waiting_claims: Annotated[
        int,
        Parameter(
            help="Most claims, in all namespaces together, that may wait for a sandbox. Further ones get 429 with Retry-After."
        ),
    ] = 10_000
    max_wait: Annotated[
        int, Parameter(help="Longest expected wait of a new claim, in seconds. Beyond that it gets 429.")
    ] = 60

    def limits(self) -> HoldingLimits:
        """Exits for a mistake."""
        from sandpool.controlplane.objects.holdings import HoldingLimits

        for flag, number in (("--max-sandboxes", self.max_sandboxes), ("--max-objects", self.max_objects)):
            if not 1 <= number <= MOST:
                raise Exit(USAGE, f"{flag} {number}: choose a number from 1 to {MOST}")
        return HoldingLimits(sandboxes=self.max_sandboxes, objects=self.max_objects, size=_size(self.max_stored_bytes))

    def bounds(self) -> Bounds:
        """Limits of waiting claims. Exits for a mistake."""
        from sandpool.controllers.claim.backlog import Bounds

        for flag, number in (("--max-waiting-claims", self.max_waiting_claims), ("--max-wait", self.max_wait)):
            if not 1 <= number <= MOST:
                raise Exit(USAGE, f"{flag} {number}: choose a number from 1 to {MOST}")
        return Bounds(self.max_waiting_claims, float(self.max_wait))

    def arguments(self) -> list[str]:
        """These flags as arguments, for the detached process."""
        return [
            f"--max-sandboxes={self.max_sandboxes}",
            f"--max-objects={self.max_objects}",
            f"--max-stored-bytes={self.max_stored_bytes}",
            f"--max-waiting-claims={self.max_waiting_claims}",
            f"--max-wait={self.max_wait}",
        ]


def _size(text: str) -> int:
    from sandpool.model.quantities import QuantityError, parse

    try:
        size = parse(text)
        if not parse(SMALLEST) <= size <= parse(LARGEST):
            raise QuantityError(text)
    except QuantityError:
        raise Exit(
            USAGE, f"--max-stored-bytes {text}: write an amount from {SMALLEST} to {LARGEST}, such as 256Mi"
        ) from None
    return size.value


DEFAULT_PORT = 7443
DEFAULT_ROUTER_PORT = 7480


@Parameter(name="*")
@dataclass(frozen=True)
class PlaceFlags:
    port: Annotated[int, Parameter(env_var="SANDPOOL_PORT", help="Port of the API. 0: a free port.")] = DEFAULT_PORT
    host: Annotated[
        str, Parameter(help="The address to listen on. Anything but loopback makes it reachable from other machines.")
    ] = "127.0.0.1"
    router_port: Annotated[
        int | None,
        Parameter(
            env_var="SANDPOOL_ROUTER_PORT",
            show_default=False,
            help=f"Port of the router, on 127.0.0.1. Default: {DEFAULT_ROUTER_PORT}, and a free port with --port 0.",
        ),
    ] = None

    @property
    def way_in(self) -> int:
        """The router's port."""
        if self.router_port is not None:
            return self.router_port
        return DEFAULT_ROUTER_PORT if self.port else 0

    def check(self) -> None:
        """Exits for a mistake."""
        for flag, number in (("--port", self.port), ("--router-port", self.way_in)):
            if not 0 <= number <= 65535:
                raise Exit(USAGE, f"{flag} {number} is not a port; choose one from 1 to 65535, or 0 for a free one")
        if not self.host:
            raise Exit(USAGE, "--host is empty; use an address such as 127.0.0.1, or 0.0.0.0 for all")

    def arguments(self) -> list[str]:
        """These flags as arguments, for the detached process."""
        return [f"--port={self.port}", f"--host={self.host}", f"--router-port={self.way_in}"]


def up(
    *,
    data_dir_: DataDirFlag = None,
    place: PlaceFlags = PlaceFlags(),
    node: NodeFlags = NodeFlags(),
    containers: DefaultFlags = DefaultFlags(),
    shares: ShareFlags = ShareFlags(),
    damage: DamageFlags = DamageFlags(),
    events: Annotated[bool, Parameter(help="Write Kubernetes Events.")] = True,
    otlp_endpoint: Annotated[
        str, Parameter(help="Base URL of an OpenTelemetry collector for traces. Default: from the OTEL_* variables.")
    ] = "",
    detach: Annotated[
        bool, Parameter(negative="", help="Return as soon as everything is ready, and leave it running.")
    ] = False,
    log_format: Annotated[Literal["text", "json"], Parameter(help="Format of log lines on stderr.")] = "text",
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", help="Also log every request.")] = False,
) -> None:
    """Start a cluster on this machine and keep it running until Ctrl-C or `sandpool down`.

    The first start creates a certificate authority, an admin token and a kubeconfig in the data directory; later starts
    keep every object, also after a crash. With `--port 0` a restart keeps the kubeconfig up to date.
    """
    directory = data_dir(data_dir_)
    place.check()
    node.check(directory.root)
    _check(otlp_endpoint)
    settings = {**node.settings(), "holdings": shares.limits(), "accept_loss": damage.accept_loss, "events": events}
    defaults, pools, bounds = containers.defaults(), settings["pools"], shares.bounds()
    directory.prepare()
    if detach:
        arguments = [*place.arguments(), "--log-format", log_format, *node.arguments(), *containers.arguments()]
        arguments += [*shares.arguments(), *damage.arguments()]
        arguments += ["--otlp-endpoint", otlp_endpoint] if otlp_endpoint else []
        arguments += ["--events" if events else "--no-events", *(["--verbose"] if verbose else [])]
        _greet(_start_detached(directory, arguments), pools)
        return
    from sandpool.app.controllers import ControllerOptions
    from sandpool.app.local_options import LocalOptions
    from sandpool.controllers.claim.options import Options as ClaimOptions
    from sandpool.telemetry.log import configure

    configure(style=log_format, level="DEBUG" if verbose else "INFO")
    listens: dict[str, Any] = {"host": place.host, "port": place.port, "router_port": place.way_in}
    with _tracing(otlp_endpoint) as tracer:
        controllers = ControllerOptions(defaults=defaults, claim=ClaimOptions(bounds=bounds))
        _serve(LocalOptions(directory, **listens, **settings, controllers=controllers, tracer=tracer))


def _serve(options: LocalOptions) -> None:
    """Runs the cluster in this process until it is stopped."""
    from sandpool.app.local_cluster import serve_until_stopped
    from sandpool.controlplane.memory_pressure import OutOfMemory

    began = time.monotonic()
    try:
        serve_until_stopped(options, lambda running: _greet(running, options.pools))
    except OutOfMemory as error:
        restart.start_again(str(error), time.monotonic() - began)
        raise Exit(OUT_OF_MEMORY, str(error)) from error


def _check(otlp_endpoint: str) -> None:
    if otlp_endpoint and not otlp_endpoint.startswith(("http://", "https://")):
        raise Exit(
            USAGE, f"--otlp-endpoint {otlp_endpoint} is not the base URL of a collector, such as http://127.0.0.1:4318"
        )


@contextmanager
def _tracing(endpoint: str) -> Iterator[Tracer]:
    from sandpool.telemetry.otel import TracingUnavailable, open_tracer
    from sandpool.telemetry.trace import NullTracer

    try:
        tracer = open_tracer(endpoint, environment=os.environ, instance=str(os.getpid()))
    except TracingUnavailable as error:
        raise Exit(FAILED, str(error)) from error
    if tracer is None:
        yield NullTracer()
        return
    try:
        yield tracer
    finally:
        tracer.close()


def _greet(running: Running, pools: FirstPools) -> None:
    print(f"The cluster is ready at {running.api}", file=sys.stderr)
    print(f"  export KUBECONFIG={shlex.quote(running.kubeconfig)}", file=sys.stderr)
    print("  kubectl api-resources", file=sys.stderr)
    for line in (NOTICES[running.backend], *unheld_notice(running.backend, running.unheld)):
        print(line, file=sys.stderr)
    warming = [name for name, size in pools.sizes.items() if size]
    if warming:
        print(
            f"{'Pools' if warming[1:] else 'Pool'} {', '.join(warming)}: sandboxes are starting.",
            file=sys.stderr,
        )
        if running.backend == "namespaces":
            print(f"  sandpool run {warming[0]} -- python3 -c 'print(6*7)'", file=sys.stderr)


def _start_detached(directory: DataDir, arguments: list[str], timeout: float = 60.0) -> Running:
    """Starts the same command in a session of its own and waits until its API answers."""
    holder = directory.holder()
    if holder is not None:
        raise in_use(directory, holder)
    command = [sys.executable, "-m", "sandpool", "up", "--data-dir", str(directory.root), *arguments]
    with directory.log.open("ab") as log:
        said_before = log.tell()
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, restart.VARIABLE: "0"},
        )
    try:
        return _await_ready(directory, child, said_before, timeout)
    except BaseException:  # also Ctrl-C: a cluster that did not become ready is not left behind
        child.terminate()
        raise


def _await_ready(directory: DataDir, child: subprocess.Popen[bytes], said_before: int, timeout: float) -> Running:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise Exit(FAILED, f"the cluster did not start: {_last_words(directory.log, said_before)}")
        running = directory.read_running()
        if running is not None and running.pid == child.pid and answers(running):
            return running
        time.sleep(0.02)
    raise Exit(TIMED_OUT, f"the API did not answer within {timeout:g} s; see {directory.log}")


def _last_words(log: Path, since: int) -> str:
    """Its error message if there is one, else everything it printed."""
    with log.open("rb") as file:
        file.seek(since)
        said = file.read().decode(errors="replace").strip()
    _, begun, why = f"\n{said}".rpartition("\nsandpool: ")
    return why if begun else said or f"it printed nothing; see {log}"
