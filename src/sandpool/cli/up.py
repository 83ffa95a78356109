"""`sandpool up`: a cluster on this machine, in the foreground or detached."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from sandpool.cli import again
from sandpool.cli.damage_flags import DamageFlags
from sandpool.cli.default_flags import DefaultFlags
from sandpool.cli.exits import FAILED, OUT_OF_MEMORY, TIMED_OUT, USAGE, Exit
from sandpool.cli.flags import DataDirFlag, data_dir
from sandpool.cli.http import answers
from sandpool.cli.node_flags import NOTICES, NodeFlags, unheld_notice
from sandpool.cli.place_flags import PlaceFlags
from sandpool.cli.share_flags import ShareFlags
from sandpool.controlplane.data_dir import DataDir, in_use
from sandpool.kube.local_discovery import Running

if TYPE_CHECKING:
    from sandpool.app.local_options import LocalOptions
    from sandpool.install.first_pool import FirstPools
    from sandpool.telemetry.trace import Tracer


def up(
    *,
    data_dir_: DataDirFlag = None,
    place: PlaceFlags = PlaceFlags(),
    node: NodeFlags = NodeFlags(),
    containers: DefaultFlags = DefaultFlags(),
    shares: ShareFlags = ShareFlags(),
    damage: DamageFlags = DamageFlags(),
    events: Annotated[bool, Parameter(help="Whether controllers tell what they do as Kubernetes Events.")] = True,
    otlp_endpoint: Annotated[
        str, Parameter(help="Where traces go: the base URL of an OpenTelemetry collector. Default: as OTEL_* say.")
    ] = "",
    detach: Annotated[
        bool, Parameter(negative="", help="Return as soon as everything is ready and leave it running.")
    ] = False,
    log_format: Annotated[Literal["text", "json"], Parameter(help="How log lines look on stderr.")] = "text",
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="", help="Log every request too.")] = False,
) -> None:
    """Start a cluster on this machine and keep it running until Ctrl-C or `sandpool down`.

    The first start makes a certificate authority, an admin token and a kubeconfig in the data directory; later starts
    find every object again, also after a crash. With `--port 0` a restart keeps the kubeconfig up to date.
    """
    directory = data_dir(data_dir_)
    place.check()
    node.check(directory.root)
    _check(otlp_endpoint)
    told = {**node.settings(), "holdings": shares.limits(), "accept_loss": damage.accept_loss, "events": events}
    defaults, pools, bounds = containers.defaults(), told["pools"], shares.bounds()
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
        _serve(LocalOptions(directory, **listens, **told, controllers=controllers, tracer=tracer))


def _serve(options: LocalOptions) -> None:
    """In this process, until it is stopped."""
    from sandpool.app.local_cluster import serve_until_stopped
    from sandpool.controlplane.memory_pressure import OutOfMemory

    began = time.monotonic()
    try:
        serve_until_stopped(options, lambda running: _greet(running, options.pools))
    except OutOfMemory as error:
        again.start_again(str(error), time.monotonic() - began)
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
            f"{'Pools' if warming[1:] else 'Pool'} {', '.join(warming)}: sandboxes are being made ready.",
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
            env={**os.environ, again.VARIABLE: "0"},
        )
    try:
        return _await_ready(directory, child, said_before, timeout)
    except BaseException:  # also Ctrl-C: what did not become ready before our eyes is not left behind
        child.terminate()
        raise


def _await_ready(directory: DataDir, child: subprocess.Popen[bytes], said_before: int, timeout: float) -> Running:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if child.poll() is not None:
            raise Exit(FAILED, f"it did not start: {_last_words(directory.log, said_before)}")
        running = directory.read_running()
        if running is not None and running.pid == child.pid and answers(running):
            return running
        time.sleep(0.02)
    raise Exit(TIMED_OUT, f"its API did not answer within {timeout:g} s; see {directory.log}")


def _last_words(log: Path, since: int) -> str:
    """Its own explanation where there is one, else all that it said."""
    with log.open("rb") as file:
        file.seek(since)
        said = file.read().decode(errors="replace").strip()
    _, begun, why = f"\n{said}".rpartition("\nsandpool: ")
    return why if begun else said or f"it said nothing; see {log}"
