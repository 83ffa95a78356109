"""`sandpool router`: the way into sandboxes on a Kubernetes cluster, in a pod or outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.router_flags import ListenFlags, RouterSeenFlags, RouterWhereFlags, WhoFlags
from sandpool.cli.tls_flags import TlsFlags

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

    It must reach pods by their addresses, so it usually runs in a pod. What is missing (a definition, a permission, the
    server itself) is told at the start, and the command ends with 1. A cluster on this machine has a router of its own.
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
