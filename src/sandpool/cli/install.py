"""`sandpool install` and `sandpool crds`: the objects that a Kubernetes cluster needs, applied to it or printed as YAML."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.console import Console, Terminal
from sandpool.cli.error_messages import describe_error
from sandpool.cli.exits import FAILED, USAGE, Exit

if TYPE_CHECKING:
    from sandpool.cli.cluster import Cluster
    from sandpool.install.settings import Settings


def crds() -> None:
    """Print the CustomResourceDefinitions of the four kinds, ready for `kubectl apply -f -`."""
    from sandpool.model.crds import crds_yaml

    print(crds_yaml(), end="")


MANAGER = "kubectl"
"""The field manager of `kubectl apply --server-side`, so that either can change what the other has applied."""
APPLIED = "application/apply-patch+yaml"

_NO_IMAGE = "no image is published yet: push yours to a registry and name it with --image"


def install(
    *,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Print the objects as YAML instead. Nothing is sent anywhere.")
    ] = False,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="Namespace of the controller.")
    ] = "agent-sandbox-system",
    image: Annotated[
        str | None,
        Parameter(
            show_default=False, help="The controller's image. Default: sandpool-controller, tagged by this version."
        ),
    ] = None,
    watch_namespaces: Annotated[
        str,
        Parameter(
            show_default=False,
            help="Namespaces to serve, separated by commas; permissions are granted in these only. Default: all.",
        ),
    ] = "",
    router: Annotated[bool, Parameter(help="Also install the router, which gives access to sandboxes.")] = True,
    kubeconfig: Annotated[
        Path | None,
        Parameter(help="Kubeconfig of the cluster. Default: $SANDPOOL_KUBECONFIG, else the current kubeconfig."),
    ] = None,
    context: Annotated[
        str, Parameter(show_default=False, help="A context of the kubeconfig. Default: $SANDPOOL_CONTEXT.")
    ] = "",
) -> None:
    """Install sandpool on a Kubernetes cluster: definitions, permissions, the controller, the router.

    It applies them server-side, as `kubectl apply --server-side` does, and can be run again. The same objects are in the Helm chart.
    """
    from sandpool.install.objects import manifest
    from sandpool.install.settings import IMAGE, Settings

    watched = tuple(name.strip() for name in watch_namespaces.split(",") if name.strip())
    settings = Settings(
        namespace=namespace, image=IMAGE if image is None else image, watch_namespaces=watched, router=router
    )
    if problem := next(settings.wrong(), None):
        raise Exit(USAGE, problem)
    if dry_run:
        if image is None:
            print(f"{_NO_IMAGE}, not {IMAGE}", file=sys.stderr)
        print(manifest(settings), end="")
        return
    if image is None:
        raise Exit(USAGE, f"{_NO_IMAGE}. `sandpool install --dry-run` shows what would be installed")
    _install(settings, ClusterFlags(kubeconfig=kubeconfig, context=context))


def _install(settings: Settings, where: ClusterFlags) -> None:
    from sandpool.cli.cluster import connected
    from sandpool.install.objects import objects

    with connected(where) as cluster:
        if cluster.running is not None:
            raise Exit(
                USAGE,
                "the cluster of this machine runs its controllers itself; name a Kubernetes cluster with --kubeconfig or --context",
            )
        applied(cluster, objects(settings), Terminal())
    follow = f"`kubectl -n {settings.namespace} rollout status deployment/sandpool-controller`"
    print(f"{follow} follows its start.", file=sys.stderr)


def applied(cluster: Cluster, wanted: Sequence[dict[str, Any]], console: Console) -> None:
    """Applies the objects in order of their dependencies. Exits with 1 at the first one that is refused."""
    for body in wanted:
        name = f"{body['kind'].lower()}/{body['metadata']['name']}"
        try:
            cluster.apply(path_of(body), json.dumps(body).encode(), APPLIED, MANAGER)
        except SandpoolError as error:
            raise Exit(
                FAILED, f"{name}: {describe_error(error)}. The objects listed above are applied; run it again"
            ) from error
        console.write(f"{name} applied\n")


def path_of(body: dict[str, Any]) -> str:
    """The API path of an object; the plural of all these kinds is regular."""
    from sandpool.sdk.api_paths import api_path

    kind, metadata = body["kind"].lower(), body["metadata"]
    resource = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return api_path(body["apiVersion"], resource, metadata.get("namespace", ""), metadata["name"])
