"""Flags of every command that uses a cluster: which cluster, which namespace, and the output format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from sandpool.cli.completion import namespaces
from sandpool.cli.console import Colour
from sandpool.cli.exits import USAGE, Exit
from sandpool.cli.output.formats import WORDS, Format, format_of
from sandpool.cli.units import duration

_CLUSTER = Group(
    "Cluster",
    sort_key=8,
    help="Which cluster. Default: $SANDPOOL_*, then the cluster running on this machine, then the current kubeconfig.",
)
_SHOWN = Group("Output", sort_key=7)


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFlags:
    namespace: Annotated[
        str,
        Parameter(
            name=["--namespace", "-n"],
            group=_CLUSTER,
            show_default=False,
            completer=namespaces,
            help="Namespace of the objects. Default: $SANDPOOL_NAMESPACE, else the context's, else default.",
        ),
    ] = ""
    kubeconfig: Annotated[
        Path | None,
        Parameter(group=_CLUSTER, help="Kubeconfig of a Kubernetes cluster. Default: $SANDPOOL_KUBECONFIG."),
    ] = None
    context: Annotated[
        str,
        Parameter(group=_CLUSTER, show_default=False, help="A context of the kubeconfig. Default: $SANDPOOL_CONTEXT."),
    ] = ""
    data_dir: Annotated[
        Path | None,
        Parameter(group=_CLUSTER, help="Data directory of the cluster on this machine. Default: $SANDPOOL_DATA_DIR."),
    ] = None

    def validate(self) -> None:
        if self.data_dir is not None and (self.kubeconfig is not None or self.context):
            raise Exit(
                USAGE,
                "--data-dir names a cluster on this machine, --kubeconfig and --context another one; use only one of them",
            )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFlags:
    output: Annotated[
        str,
        Parameter(
            name=["--output", "-o"],
            group=_SHOWN,
            completer=lambda context: (*WORDS, "jsonpath="),
            help="table, wide, json, yaml, name or jsonpath=TEMPLATE.",
        ),
    ] = "table"
    no_headers: Annotated[bool, Parameter(negative="", group=_SHOWN, help="Print tables without headers.")] = False
    color: Annotated[
        Colour,
        Parameter(env_var="SANDPOOL_COLOR", group=_SHOWN, help="auto: color on a terminal, unless NO_COLOR is set."),
    ] = "auto"

    def format(self) -> Format:
        return format_of(self.output)


Selector = Annotated[
    str,
    Parameter(
        name=["--selector", "-l"],
        show_default=False,
        help="Only objects with these labels: team=red, tier!=web, env in (a,b).",
    ),
]
AllNamespaces = Annotated[bool, Parameter(name=["--all-namespaces", "-A"], negative="", help="In every namespace.")]
Watch = Annotated[
    bool, Parameter(name=["--watch", "-w"], negative="", help="Keep running and show changes until interrupted.")
]
Timeout = Annotated[
    str,
    Parameter(name="--timeout", env_var="SANDPOOL_TIMEOUT", help="How long to wait, such as 30s or 5m; 0: forever."),
]


def timeout_of(text: str) -> float | None:
    """Seconds; None: no limit."""
    return duration(text, "--timeout", zero=True) or None


def pairs(values: tuple[str, ...], flag: str) -> dict[str, str]:
    """A repeated flag `KEY=VALUE` as a dict."""
    found = {}
    for value in values:
        key, sign, rest = value.partition("=")
        if not sign or not key:
            raise Exit(USAGE, f"{flag} {value!r} is not KEY=VALUE")
        found[key] = rest
    return found
