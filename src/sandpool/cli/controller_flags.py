"""Flags of `sandpool controller` by topic, and the options that each group stands for.

Names are those of the contract where it has one, so that manifests of other implementations keep their arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.units import duration

if TYPE_CHECKING:
    from sandpool.app.controller_manager import Rate
    from sandpool.app.controllers import Workers
    from sandpool.controllers.pool.options import Options as PoolOptions
    from sandpool.loop.lease import Terms
    from sandpool.telemetry.pages import Address

DOMAINS_FILE = Path("/etc/sandbox-config/allowed-label-domains")


def flag_of(group: Group) -> Callable[..., Parameter]:
    def made(help: str, *, default: bool = True, negative: str | None = None) -> Parameter:
        return Parameter(group=group, help=help, show_default=default, negative=negative)

    return made


_where = flag_of(Group("The cluster", sort_key=1))
_lead = flag_of(Group("Leader election", sort_key=2))
_pace = flag_of(Group("Pace", sort_key=3))
MEMBERS = Group("Members of pools and claims", sort_key=4)
_members = flag_of(MEMBERS)
_seen = flag_of(Group("Watching it", sort_key=5))


@dataclass(frozen=True, slots=True, kw_only=True)
class WhereFlags:
    kubeconfig: Annotated[
        Path | None, _where("Default: $KUBECONFIG, else ~/.kube/config, else the pod's own account.", default=False)
    ] = None
    context: Annotated[str, _where("A context of the kubeconfig. Default: its current one.", default=False)] = ""
    watch_namespaces: Annotated[
        str, _where("Serve only these namespaces, separated by commas. Default: all.", default=False)
    ] = ""
    extensions: Annotated[bool, _where("Serve templates, pools and claims in addition to sandboxes.")] = True
    cluster_domain: Annotated[str, _where("The DNS domain of Services.")] = "cluster.local"
    router_namespace: Annotated[
        str,
        _where(
            "Namespace of the router, which the default NetworkPolicy of templates admits. Default: the pod's namespace, "
            "else agent-sandbox-system.",
            default=False,
        ),
    ] = ""

    def router(self) -> str:
        """Empty: the namespace of this pod."""
        if self.router_namespace:
            named_namespace("--router-namespace", self.router_namespace)
        return self.router_namespace

    def namespaces(self) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(name.strip() for name in self.watch_namespaces.split(",") if name.strip()))
        for name in names:
            named_namespace("--watch-namespaces", name)
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadFlags:
    leader_elect: Annotated[bool, _lead("Act only while holding the lease, so that several replicas can run.")] = True
    leader_election_namespace: Annotated[
        str,
        _lead("Namespace of the lease. Default: the pod's namespace, else the kubeconfig context's.", default=False),
    ] = ""
    leader_election_lease_duration: Annotated[
        str, _lead("How long others wait before they take over from a silent leader; at least 3s.")
    ] = "8s"

    def terms(self) -> Terms:
        from sandpool.loop.lease import Terms

        lasts = duration(self.leader_election_lease_duration, "--leader-election-lease-duration")
        if lasts < 3:
            raise Exit(
                USAGE, "--leader-election-lease-duration must be at least 3s, because a renewal takes several requests"
            )
        return Terms.lasting(lasts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceFlags:
    kube_api_qps: Annotated[float, _pace("Requests a second to the API server, at most; 0 or less: no limit.")] = -1.0
    kube_api_burst: Annotated[int, _pace("Requests at once above that rate.")] = 10
    kube_api_writes_in_flight: Annotated[
        int,
        _pace("Most concurrent writes. The actual limit adapts to the server's latency, 429 responses and failures."),
    ] = 50
    cache_label_selectors: Annotated[
        bool,
        _pace(
            "Watch only pods and Services with the label of sandboxes: less traffic on a cluster with many others.",
            negative="",
        ),
    ] = False
    # A worker that waits for the server costs next to nothing: the line above bounds the writes in flight.
    sandbox_claim_concurrent_workers: Annotated[int, _pace("Claims reconciled concurrently.")] = 400
    sandbox_concurrent_workers: Annotated[int, _pace("Sandboxes reconciled concurrently.")] = 400
    sandbox_warm_pool_concurrent_workers: Annotated[int, _pace("Pools reconciled concurrently.")] = 8
    sandbox_template_concurrent_workers: Annotated[int, _pace("Templates reconciled concurrently.")] = 1

    def rate(self) -> Rate:
        from sandpool.app.controller_manager import Rate

        if math.isnan(self.kube_api_qps):
            raise Exit(USAGE, "--kube-api-qps must be a number")
        at_least_one("--kube-api-burst", self.kube_api_burst)
        at_least_one("--kube-api-writes-in-flight", self.kube_api_writes_in_flight)
        return Rate(max(0.0, self.kube_api_qps), self.kube_api_burst, self.kube_api_writes_in_flight)

    def workers(self) -> Workers:
        from sandpool.app.controllers import Workers

        counts = {
            "claim": ("--sandbox-claim-concurrent-workers", self.sandbox_claim_concurrent_workers),
            "sandbox": ("--sandbox-concurrent-workers", self.sandbox_concurrent_workers),
            "pool": ("--sandbox-warm-pool-concurrent-workers", self.sandbox_warm_pool_concurrent_workers),
            "template": ("--sandbox-template-concurrent-workers", self.sandbox_template_concurrent_workers),
        }
        return Workers(**{name: at_least_one(*count) for name, count in counts.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFlags:
    sandbox_warm_pool_max_batch_size: Annotated[
        int, _members("Most creates, and most deletes, of a pool in one reconcile.")
    ] = 300
    sandbox_warm_pool_max_refill_rate: Annotated[float, _members("Most creates per second of a pool; 0: no limit.")] = (
        0.0
    )
    sandbox_warm_pool_replenish_delay: Annotated[
        str, _members("How long to wait with refilling after members were claimed.")
    ] = "0s"
    sandbox_warm_pool_readiness_grace_period: Annotated[
        str, _members("Replace a member that is not Ready for this long.")
    ] = "5m"
    enable_warm_pool_eviction: Annotated[bool, _members("Mark pods of unclaimed members as safe to evict.")] = True
    disable_claim_observability_annotations: Annotated[
        bool,
        _members("Do not annotate claims with their sandbox and the times when they were seen and ready.", negative=""),
    ] = False
    disable_claim_events: Annotated[
        bool, _members("Write no Events about claims, only about pools and sandboxes.", negative="")
    ] = False
    allowed_label_domains: Annotated[
        str,
        _members(
            f"Domains of labels that claims may put on pods, separated by commas. Default: the content of {DOMAINS_FILE}, "
            "else sandbox.users.io.",
            default=False,
        ),
    ] = ""

    def pool(self) -> PoolOptions:
        from sandpool.controllers.pool.options import Options

        rate, prefix = self.sandbox_warm_pool_max_refill_rate, "--sandbox-warm-pool-"
        if not (math.isfinite(rate) and rate >= 0):
            raise Exit(USAGE, f"{prefix}max-refill-rate must be a number of at least 0")
        return Options(
            batch=at_least_one(f"{prefix}max-batch-size", self.sandbox_warm_pool_max_batch_size),
            refill_rate=rate,
            replenish_delay=duration(self.sandbox_warm_pool_replenish_delay, f"{prefix}replenish-delay", zero=True),
            readiness_grace=duration(self.sandbox_warm_pool_readiness_grace_period, f"{prefix}readiness-grace-period"),
        )

    def label_domains(self, file: Path = DOMAINS_FILE) -> tuple[str, ...]:
        """None: the default of the claim controller."""
        text = self.allowed_label_domains
        if not text:
            try:
                text = file.read_text()
            except FileNotFoundError:
                return ()
        words = text.replace("\n", ",").split(",")
        return tuple(dict.fromkeys(word.strip().lower() for word in words if word.strip()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFlags:
    events: Annotated[bool, _seen("Write Kubernetes Events.")] = True
    metrics_bind_address: Annotated[
        str | None,
        _seen("Address of /metrics; 0: disabled. Default: :8080 in a pod, else 127.0.0.1:8080.", default=False),
    ] = None
    health_probe_bind_address: Annotated[
        str | None,
        _seen(
            "Address of /healthz and /readyz; 0: disabled. Default: :8081 in a pod, else 127.0.0.1:8081.", default=False
        ),
    ] = None
    debug_bind_address: Annotated[
        str, _seen("Address for profiles (/debug/...); 0: disabled. On loopback unless it names a host.")
    ] = "0"
    stories_bind_address: Annotated[
        str, _seen("Address of the reconcile history (/stories), for `sandpool why`; on loopback only, 0: disabled.")
    ] = "127.0.0.1:8082"
    enable_tracing: Annotated[bool, _seen("Send spans as configured by the OTEL_* variables.", negative="")] = False
    log_format: Annotated[Literal["json", "text"], _seen("Format of log lines on stderr.")] = "json"
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"]), _seen("Also log every attempt.", negative="")] = False

    def addresses(self, env: Mapping[str, str]) -> tuple[Address | None, Address | None, Address | None]:
        """The addresses of metrics, health and debug pages."""
        from sandpool.kube.config import inside_cluster

        host = "" if inside_cluster(env) else "127.0.0.1"
        return (
            read_address("--metrics-bind-address", self.metrics_bind_address or f"{host}:8080"),
            read_address("--health-probe-bind-address", self.health_probe_bind_address or f"{host}:8081"),
            read_address("--debug-bind-address", self.debug_bind_address, host="127.0.0.1"),
        )

    def stories_address(self) -> Address | None:
        """The reconcile history covers every namespace and has no authentication, so it is served on loopback only, for operators."""
        flag = "--stories-bind-address"
        address = read_address(flag, self.stories_bind_address, host="127.0.0.1")
        if address is not None and not _loopback(address.host):
            raise Exit(
                USAGE, f"{flag} {self.stories_bind_address}: only on loopback; reach it with `kubectl port-forward`"
            )
        return address


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def named_namespace(flag: str, name: str) -> None:
    from sandpool.model.names import dns_label

    if problems := dns_label(name):
        raise Exit(USAGE, f"{flag}: {name!r} cannot be the name of a namespace: {problems[0]}")


def read_address(flag: str, text: str, *, host: str = "") -> Address | None:
    from sandpool.telemetry.pages import parse_address

    try:
        return parse_address(text, host=host)
    except ValueError:
        raise Exit(USAGE, f"{flag} {text!r} is not an address; write for example :8080, 127.0.0.1:8080 or 0") from None


def at_least_one(flag: str, value: int) -> int:
    if value < 1:
        raise Exit(USAGE, f"{flag} must be at least 1, not {value}")
    return value
