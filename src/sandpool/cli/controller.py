"""`sandpool controller`: runs the controllers on a Kubernetes cluster, in a pod or outside."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sandpool.cli.contract_flags import ContractFlags
from sandpool.cli.controller_flags import MEMBERS, LeadFlags, MemberFlags, PaceFlags, SeenFlags, WhereFlags
from sandpool.cli.default_flags import DefaultFlags
from sandpool.cli.exits import FAILED, Exit
from sandpool.cli.tls_flags import TlsFlags

if TYPE_CHECKING:
    from sandpool.app.controllers import ControllerOptions
    from sandpool.telemetry.otel import OtelTracer

_FLAT = Parameter(name="*")


def controller(
    *,
    where: Annotated[WhereFlags, _FLAT] = WhereFlags(),
    lead: Annotated[LeadFlags, _FLAT] = LeadFlags(),
    pace: Annotated[PaceFlags, _FLAT] = PaceFlags(),
    members: Annotated[MemberFlags, _FLAT] = MemberFlags(),
    defaults: Annotated[DefaultFlags, Parameter(name="*", group=MEMBERS)] = DefaultFlags(),
    seen: Annotated[SeenFlags, _FLAT] = SeenFlags(),
    tls: Annotated[TlsFlags, _FLAT] = TlsFlags(),
    others: Annotated[ContractFlags, _FLAT] = ContractFlags(),
) -> None:
    """Run the controllers on a Kubernetes cluster until SIGTERM or Ctrl-C.

    Several replicas can run: one leads, the others wait for its lease. If something is missing (a definition, a permission,
    the server itself), the command reports it at the start and exits with 1.
    """
    from sandpool.app.controller_manager import ManagerOptions, serve_until_stopped
    from sandpool.telemetry.log import configure

    rate = pace.rate()
    others.check(connections=rate.connections)
    metrics_at, health_at, debug_at = seen.addresses(os.environ)
    options = ManagerOptions(
        kubeconfig=where.kubeconfig,
        context=where.context,
        namespaces=where.namespaces(),
        extensions=where.extensions,
        elect=lead.leader_elect,
        lease_namespace=lead.leader_election_namespace,
        terms=lead.terms(),
        rate=rate,
        events=seen.events,
        metrics_at=metrics_at,
        metrics_tls=tls.metrics_tls(),
        health_at=health_at,
        debug_at=debug_at,
        stories_at=seen.stories_address(),
        router_namespace=where.router(),
        controllers=_controllers(where, pace, members, defaults),
    )
    configure(style=seen.log_format, level="DEBUG" if seen.verbose else "INFO")
    tracer = _tracer() if seen.enable_tracing else None
    try:
        serve_until_stopped(options, tracer)
    finally:
        if tracer is not None:
            tracer.close()


def _controllers(where: WhereFlags, pace: PaceFlags, members: MemberFlags, defaults: DefaultFlags) -> ControllerOptions:
    from sandpool.app.controllers import ControllerOptions
    from sandpool.controllers.claim.options import Options as ClaimOptions
    from sandpool.controllers.sandbox.options import Options as SandboxOptions

    claim = ClaimOptions(annotations=not members.disable_claim_observability_annotations)
    if domains := members.label_domains():
        claim = ClaimOptions(annotations=claim.annotations, label_domains=domains)
    return ControllerOptions(
        sandbox=SandboxOptions(
            cluster_domain=where.cluster_domain, evictable_members=members.enable_warm_pool_eviction
        ),
        pool=members.pool(),
        claim=claim,
        workers=pace.workers(),
        defaults=defaults.defaults(),
        claim_events=not members.disable_claim_events,
        tracked_only=pace.cache_label_selectors,
    )


def _tracer() -> OtelTracer:
    from sandpool.telemetry.otel import ENDPOINTS, TracingUnavailable, open_tracer

    try:
        tracer = open_tracer(environment=os.environ)
    except TracingUnavailable as error:
        raise Exit(FAILED, str(error)) from error
    if tracer is None:
        raise Exit(FAILED, f"--enable-tracing: no collector is configured; set {ENDPOINTS[1]} to a collector's address")
    return tracer
