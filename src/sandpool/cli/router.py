"""`sandpool router`: runs the router on a Kubernetes cluster, and its flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from cyclopts import Group, Parameter

from sandpool.cli.controller_flags import flag_of, named_namespace, read_address
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.tls_flags import TlsFlags

if TYPE_CHECKING:
    from sandpool.loop.serving_tls import CertificateFiles
    from sandpool.router.guard import Allowed
    from sandpool.telemetry.pages import Address

_where = flag_of(Group("The cluster", sort_key=1))
_listen = flag_of(Group("Where it listens", sort_key=2))
_who = flag_of(Group("Who is let in", sort_key=3))
_seen = flag_of(Group("Watching it", sort_key=4))


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterWhereFlags:
    kubeconfig: Annotated[
        Path | None, _where("Default: $KUBECONFIG, else ~/.kube/config, else the pod's own account.", default=False)
    ] = None
    context: Annotated[str, _where("A context of the kubeconfig. Default: its current one.", default=False)] = ""
    namespaces: Annotated[
        str, _where("Serve only sandboxes in these namespaces, separated by commas. Default: all.", default=False)
    ] = ""
    activity: Annotated[bool, _where("Record on each sandbox when it was last used.")] = True

    def served(self) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in self.namespaces.split(",") if name.strip()))
        for name in names:
            named_namespace("--namespaces", name)
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenFlags:
    listen_address: Annotated[
        str | None,
        _listen("Address to listen on. Default: :8080 in a pod, which is every IPv4 address, else 127.0.0.1:8080.", default=False),
    ] = None  # fmt: skip
    tls_cert_file: Annotated[
        Path | None, _listen("A PEM certificate, for HTTPS. Reloaded when it changes.", default=False)
    ] = None
    tls_key_file: Annotated[Path | None, _listen("Its key.", default=False)] = None
    url: Annotated[
        str,
        _listen("The router's public base URL, used in the addresses that it gives out. Default: taken from the request.", default=False),
    ] = ""  # fmt: skip

    def address(self, env: Mapping[str, str]) -> Address:
        from sandpool.kube.config import inside_cluster

        usual = ":8080" if inside_cluster(env) else "127.0.0.1:8080"
        found = read_address("--listen-address", self.listen_address or usual)
        if found is None:
            raise Exit(USAGE, "--listen-address must be an address; the router has to listen")
        return found

    def certificate(self) -> CertificateFiles | None:
        from sandpool.loop.serving_tls import CertificateFiles

        if self.tls_cert_file is None and self.tls_key_file is None:
            return None
        if self.tls_cert_file is None or self.tls_key_file is None:
            raise Exit(USAGE, "--tls-cert-file and --tls-key-file must be used together")
        return CertificateFiles(self.tls_cert_file, self.tls_key_file)

    def base(self) -> str:
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
            raise Exit(USAGE, f"--url {self.url!r} is not a base URL; write for example https://boxes.example.com")
        return self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoFlags:
    token_key_file: Annotated[
        tuple[Path, ...],
        _who(
            "The key for tokens of one sandbox: a file, or a directory of such files. Repeatable: the first one "
            "signs, all are accepted. Default: no such tokens.",
            default=False,
            negative="",
        ),
    ] = ()
    token_audience: Annotated[
        tuple[str, ...],
        _who(
            "Accept only tokens for this audience, not those for the API server. Repeatable.",
            default=False,
            negative="",
        ),
    ] = ()
    trust_port_forward: Annotated[
        bool,
        _who(
            "Treat connections from inside the pod, as `kubectl port-forward` makes them, as the user port-forward. RBAC decides what it "
            "may use.",
            negative="",
        ),
    ] = False
    allowed_host: Annotated[
        tuple[str, ...],
        _who("A Host that such connections may use, in addition to localhost. Repeatable.", default=False, negative=""),
    ] = ()
    allowed_origin: Annotated[
        tuple[str, ...],
        _who("An Origin whose pages may use such connections. Repeatable.", default=False, negative=""),
    ] = ()

    def allowed(self) -> Allowed:
        from sandpool.router.guard import Allowed, well_formed

        for host in self.allowed_host:
            if not well_formed(host):
                raise Exit(USAGE, f"--allowed-host {host!r} is not a host; write for example boxes.example.com")
        for origin in self.allowed_origin:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc}" != origin:
                raise Exit(
                    USAGE, f"--allowed-origin {origin!r} is not an origin; write for example https://ide.example.com"
                )
        return Allowed(frozenset(map(str.lower, self.allowed_host)), frozenset(map(str.lower, self.allowed_origin)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSeenFlags:
    audit_log: Annotated[
        str,
        _seen("Audit log, one line for each request: a file, or - for standard output. Default: none.", default=False),
    ] = ""  # fmt: skip
    metrics_bind_address: Annotated[
        str | None,
        _seen("Address of /metrics; 0: disabled. Default: :9090 in a pod, else 127.0.0.1:9090.", default=False),
    ] = None
    health_probe_bind_address: Annotated[
        str | None,
        _seen(
            "Address of /healthz and /readyz; 0: disabled. Default: :8081 in a pod, else 127.0.0.1:8081.", default=False
        ),
    ] = None
    log_format: Annotated[Literal["json", "text"], _seen("Format of log lines on stderr.")] = "json"
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"]), _seen("Log more.", negative="")] = False

    def addresses(self, env: Mapping[str, str]) -> tuple[Address | None, Address | None]:
        """Of metrics and health."""
        from sandpool.kube.config import inside_cluster

        host = "" if inside_cluster(env) else "127.0.0.1"
        return (
            read_address("--metrics-bind-address", self.metrics_bind_address or f"{host}:9090"),
            read_address("--health-probe-bind-address", self.health_probe_bind_address or f"{host}:8081"),
        )


_FLAT = Parameter(name="*")
STDOUT = "-"


def router(
    *,
    where: Annotated[RouterWhereFlags, _FLAT] = RouterWhereFlags(),
    listen: Annotated[ListenFlags, _FLAT] = ListenFlags(),
    who: Annotated[WhoFlags, _FLAT] = WhoFlags(),
    seen: Annotated[RouterSeenFlags, _FLAT] = RouterSeenFlags(),
    tls: Annotated[TlsFlags, _FLAT] = TlsFlags(),
) -> None:
    """Run the router on a Kubernetes cluster until SIGTERM or Ctrl-C.

    It must reach pods by their addresses, so it usually runs in a pod. If something is missing (a definition, a
    permission, the server itself), the command reports it at the start and exits with 1. A local cluster has its own router.
    """
    from sandpool.app.router import KubeRouterOptions, serve_until_stopped
    from sandpool.router.gate import GateOptions
    from sandpool.router.guard import loopback
    from sandpool.telemetry.log import configure

    metrics_at, health_at = seen.addresses(os.environ)
    listen_at, certificate = listen.address(os.environ), listen.certificate()
    options = KubeRouterOptions(
        kubeconfig=where.kubeconfig,
        context=where.context,
        namespaces=where.served(),
        listen_at=listen_at,
        certificate=certificate,
        tls_terms=tls.terms(),
        metrics_at=metrics_at,
        metrics_tls=tls.metrics_tls(listens_with_tls=certificate is not None),
        health_at=health_at,
        token_keys=who.token_key_file,
        audiences=who.token_audience,
        audit=Path(seen.audit_log) if seen.audit_log not in ("", STDOUT) else None,
        audit_to_stdout=seen.audit_log == STDOUT,
        activity=where.activity,
        trust_port_forward=who.trust_port_forward,
        gate=GateOptions(loopback=loopback(listen_at.host), allowed=who.allowed(), url=listen.base()),
    )
    configure(style=seen.log_format, level="DEBUG" if seen.verbose else "INFO")
    serve_until_stopped(options)
