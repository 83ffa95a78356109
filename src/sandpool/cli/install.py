"""`sandpool install`: the objects that a Kubernetes cluster needs, as YAML."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from sandpool.cli.exits import USAGE, Exit

APPLY = "kubectl apply --server-side -f -"


def install(
    *,
    dry_run: Annotated[bool, Parameter(negative="", help="Print the objects. Nothing is sent anywhere.")] = False,
    namespace: Annotated[
        str, Parameter(name=["--namespace", "-n"], help="Where the controller runs.")
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
            help="Namespaces to serve, separated by commas; rights are granted in these only. Default: all.",
        ),
    ] = "",
    router: Annotated[
        bool, Parameter(help="Whether a router, the way into sandboxes, runs beside the controller.")
    ] = True,
) -> None:
    """Print what installs sandpool on a Kubernetes cluster: definitions, permissions, the controller, the router.

    It sends nothing by itself: read what it prints, then give it to kubectl. The same objects are in the Helm chart.
    """
    from sandpool.assembly.installation.objects import manifest
    from sandpool.assembly.installation.settings import IMAGE, Settings

    watched = tuple(name.strip() for name in watch_namespaces.split(",") if name.strip())
    settings = Settings(
        namespace=namespace, image=IMAGE if image is None else image, watch_namespaces=watched, router=router
    )
    if problem := next(settings.wrong(), None):
        raise Exit(USAGE, problem)
    if not dry_run:
        raise Exit(USAGE, f"install changes no cluster by itself; run `sandpool install --dry-run | {APPLY}`")
    if image is None:
        print(
            f"No image is published yet: push yours to a registry and name it with --image, not {IMAGE}",
            file=sys.stderr,
        )
    print(manifest(settings), end="")
