"""The flags of `sandpool router`, by what they are about, and what each group makes of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

from cyclopts import Group, Parameter

from sandpool.cli.controller_flags import flag_of, named_namespace, read_address
from sandpool.cli.exits import USAGE, Exit

if TYPE_CHECKING:
    from sandpool.loop.serving_certificate import CertificateFiles
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
        str, _where("Only sandboxes of these namespaces, separated by commas. Default: all.", default=False)
    ] = ""
    activity: Annotated[bool, _where("Note on each sandbox when it was last used.")] = True

    def served(self) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in self.namespaces.split(",") if name.strip()))
        for name in names:
            named_namespace("--namespaces", name)
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenFlags:
    listen_address: Annotated[
        str | None,
        _listen("Where requests are taken. Default: :8080 in a pod, which is every IPv4 address, else 127.0.0.1:8080.", default=False),
    ] = None  # fmt: skip
    tls_cert_file: Annotated[
        Path | None, _listen("A certificate in PEM, for HTTPS. Read again when it changes.", default=False)
    ] = None
    tls_key_file: Annotated[Path | None, _listen("Its key.", default=False)] = None
    url: Annotated[
        str,
        _listen("How clients reach the router: the beginning of addresses that it gives out. Default: as they ask.", default=False),
    ] = ""  # fmt: skip

    def address(self, env: Mapping[str, str]) -> Address:
        from sandpool.kube.incluster import inside_cluster

        usual = ":8080" if inside_cluster(env) else "127.0.0.1:8080"
        found = read_address("--listen-address", self.listen_address or usual)
        if found is None:
            raise Exit(USAGE, "--listen-address must be an address: a router that does not listen is none")
        return found

    def certificate(self) -> CertificateFiles | None:
        from sandpool.loop.serving_certificate import CertificateFiles

        if self.tls_cert_file is None and self.tls_key_file is None:
            return None
        if self.tls_cert_file is None or self.tls_key_file is None:
            raise Exit(USAGE, "--tls-cert-file and --tls-key-file belong together; name both or none")
        return CertificateFiles(self.tls_cert_file, self.tls_key_file)

    def base(self) -> str:
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment):
            raise Exit(USAGE, f"--url {self.url!r} is no base address; write for example https://boxes.example.com")
        return self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoFlags:
    token_key_file: Annotated[
        tuple[Path, ...],
        _who(
            "The key of tokens for one sandbox: a file, or a folder of such files. May be repeated: the first one "
            "signs, all are accepted. Default: there are no such tokens.",
            default=False,
            negative="",
        ),
    ] = ()
    token_audience: Annotated[
        tuple[str, ...],
        _who(
            "Accept only tokens that were made for this audience, not those for the API server. May be repeated.",
            default=False,
            negative="",
        ),
    ] = ()
    trust_port_forward: Annotated[
        bool,
        _who(
            "Connections from inside the pod, as `kubectl port-forward` makes them, are the caller port-forward. What it "
            "may use is for RBAC to say.",
            negative="",
        ),
    ] = False
    allowed_host: Annotated[
        tuple[str, ...],
        _who("A Host that such connections may name, beside localhost. May be repeated.", default=False, negative=""),
    ] = ()
    allowed_origin: Annotated[
        tuple[str, ...],
        _who("An Origin whose pages may use such connections. May be repeated.", default=False, negative=""),
    ] = ()

    def allowed(self) -> Allowed:
        from sandpool.router.guard import Allowed, well_formed

        for host in self.allowed_host:
            if not well_formed(host):
                raise Exit(USAGE, f"--allowed-host {host!r} is no host; write for example boxes.example.com")
        for origin in self.allowed_origin:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc}" != origin:
                raise Exit(
                    USAGE, f"--allowed-origin {origin!r} is no origin; write for example https://ide.example.com"
                )
        return Allowed(frozenset(map(str.lower, self.allowed_host)), frozenset(map(str.lower, self.allowed_origin)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSeenFlags:
    audit_log: Annotated[
        str,
        _seen("Where one line is written for each request: a file, or - for standard output. Default: nowhere.", default=False),
    ] = ""  # fmt: skip
    metrics_bind_address: Annotated[
        str | None,
        _seen("Where /metrics is; 0: nowhere. Default: :9090 in a pod, else 127.0.0.1:9090.", default=False),
    ] = None
    health_probe_bind_address: Annotated[
        str | None,
        _seen(
            "Where /healthz and /readyz are; 0: nowhere. Default: :8081 in a pod, else 127.0.0.1:8081.", default=False
        ),
    ] = None
    log_format: Annotated[Literal["json", "text"], _seen("How log lines look on stderr.")] = "json"
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"]), _seen("Log more.", negative="")] = False

    def addresses(self, env: Mapping[str, str]) -> tuple[Address | None, Address | None]:
        """Of metrics and health."""
        from sandpool.kube.incluster import inside_cluster

        host = "" if inside_cluster(env) else "127.0.0.1"
        return (
            read_address("--metrics-bind-address", self.metrics_bind_address or f"{host}:9090"),
            read_address("--health-probe-bind-address", self.health_probe_bind_address or f"{host}:8081"),
        )
