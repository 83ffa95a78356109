"""Flags that other implementations of the contract have and this one does not need.

Manifests written for them keep working: a value that asks for the behaviour of this implementation is accepted. Any other value is
refused, all of them in one message, each with what to do instead: ignoring it would mislead the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit

_Text = Annotated[str | None, Parameter(show=False)]
_Switch = Annotated[bool | None, Parameter(show=False, negative="")]

WEBHOOK = (
    "there is no conversion webhook and none is needed: the definitions have the one version v1beta1; leave it out "
    "(docs/how-to/replace-another-controller.md explains what happens to older objects)"
)
PROFILES = "profiles are taken on a port of their own; use --debug-bind-address"
LOGGING = "use --log-format and --verbose"
INSTEAD = {
    "api_connections": "requests have as many connections as they need, up to twice --kube-api-writes-in-flight; write a number "
    "from 1 to that, or raise that",
    "separate_watch_connection": "watches always have connections of their own; leave it out",
    "sandbox_write_behind_window": "labels of a pod are written once, and nothing waits for them; leave it out",
    "sandbox_warm_pool_unschedulable_recheck_interval": "unschedulable pods are noticed at once; how long a "
    "member may stay unready is --sandbox-warm-pool-readiness-grace-period; leave it out",
    "enable_webhook": WEBHOOK,
    "manage_webhook_certs": WEBHOOK,
    "webhook_port": WEBHOOK,
    "webhook_cert_dir": WEBHOOK,
    "webhook_cert_name": WEBHOOK,
    "webhook_key_name": WEBHOOK,
    "webhook_service_name": WEBHOOK,
    "webhook_namespace": WEBHOOK,
    "enable_pprof": PROFILES,
    "enable_pprof_debug": PROFILES,
    "pprof_block_profile_rate": PROFILES,
    "pprof_mutex_profile_fraction": PROFILES,
    "zap_devel": LOGGING,
    "zap_encoder": LOGGING,
    "zap_log_level": LOGGING,
    "zap_stacktrace_level": LOGGING,
    "zap_time_encoding": LOGGING,
}
ANYWAY: dict[str, frozenset[object]] = {
    "separate_watch_connection": frozenset({True}),
    "sandbox_write_behind_window": frozenset({"0", "0s"}),
    "enable_webhook": frozenset({False}),
    "manage_webhook_certs": frozenset({False}),
    "enable_pprof": frozenset({False}),
    "enable_pprof_debug": frozenset({False}),
    "zap_devel": frozenset({False}),
    "zap_encoder": frozenset({"json"}),
    "zap_log_level": frozenset({"info"}),
}
"""Values that ask for what this implementation does anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractFlags:
    api_connections: _Text = None
    separate_watch_connection: _Switch = None
    sandbox_write_behind_window: _Text = None
    sandbox_warm_pool_unschedulable_recheck_interval: _Text = None
    enable_webhook: _Switch = None
    manage_webhook_certs: _Switch = None
    webhook_port: _Text = None
    webhook_cert_dir: _Text = None
    webhook_cert_name: _Text = None
    webhook_key_name: _Text = None
    webhook_service_name: _Text = None
    webhook_namespace: _Text = None
    enable_pprof: _Switch = None
    enable_pprof_debug: _Switch = None
    pprof_block_profile_rate: _Text = None
    pprof_mutex_profile_fraction: _Text = None
    zap_devel: _Switch = None
    zap_encoder: _Text = None
    zap_log_level: _Text = None
    zap_stacktrace_level: _Text = None
    zap_time_encoding: _Text = None

    def check(self, *, connections: int) -> None:
        """`connections`: the limit of connections to the API server."""
        if refused := list(self._refused(connections)):
            raise Exit(USAGE, "; ".join(refused))

    def _refused(self, connections: int) -> Iterator[str]:
        """One sentence per advice, with all flags it is about."""
        named: dict[str, list[str]] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "api_connections" and _within(value, connections):
                continue
            if value is not None and value not in ANYWAY.get(field.name, ()):
                named.setdefault(INSTEAD[field.name], []).append(flag(field.name))
        for instead, names in named.items():
            yield f"{', '.join(names)}: {instead}"


def _within(value: str | None, most: int) -> bool:
    """Whether it is a number of connections that requests may use."""
    return value is not None and value.isascii() and value.isdecimal() and 1 <= int(value) <= most


def flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
