"""`sandpool why`: explains what happened to one object, from the controllers' reconcile history."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.error import URLError
from urllib.parse import unquote, urlencode

from cyclopts import Parameter

from sandpool.base.errors import SandpoolError
from sandpool.cli.cluster import connected
from sandpool.cli.cluster_flags import ClusterFlags
from sandpool.cli.completion import kinds_and_names
from sandpool.cli.exits import FAILED, NOT_FOUND, USAGE, Exit
from sandpool.cli.flags import OutputFlag
from sandpool.cli.history import (
    KINDS,
    STORIES,
    RelatedObject,
    document,
    nothing_remembered,
    related_objects,
    text,
    timeline,
    word_of,
)
from sandpool.cli.output.formats import as_json
from sandpool.kube.errors import ApiError, NotFound

if TYPE_CHECKING:
    from sandpool.kube.local_discovery import Running
    from sandpool.sdk._sync.cluster import Cluster


def why(
    what: Annotated[
        str, Parameter(completer=kinds_and_names, help="claim/NAME, sandbox/NAME, pool/NAME or template/NAME.")
    ],
    /,
    *,
    output: OutputFlag = "table",
    stories: Annotated[
        str,
        Parameter(show_default=False, help="Address of a Kubernetes controller's reconcile history: HOST:PORT."),
    ] = "",
    controller_namespace: Annotated[
        str, Parameter(help="The controller's namespace; the lease there names the leading replica.")
    ] = "agent-sandbox-system",
    where: ClusterFlags = ClusterFlags(),
) -> None:
    """Explain what happened to one object and why: what was seen, decided and written, and when.

    Includes the objects that it depends on (a claim's sandbox, its pod and its pool), their conditions and their Events.
    Controllers keep their history in memory, so it starts when the cluster was started. Exits with 3 if there is no such object
    and no history of it.
    """
    word, name = asked(what)
    with connected(where) as cluster:
        source = Source(cluster.connection.cluster, controller_namespace, running=cluster.running, stories=stories)
        _tell(source, word, cluster.namespace, name, output)


def _tell(source: Source, word: str, namespace: str, name: str, output: str) -> None:
    found = related_objects(source.get, word, namespace, name)
    entries = timeline(found)
    if found[0].body is None and not entries:
        raise Exit(
            NOT_FOUND,
            f"there is no {word} {name!r} in namespace {namespace!r}, and no history of one; "
            f"`sandpool get {KINDS[word].plural} -A` lists the existing ones",
        )
    if output == "json":
        print(as_json(document(found, entries)))
        return
    print(text(found, entries), end="")
    if not found[0].entries:
        print(f"sandpool: {source.silence(found)}", file=sys.stderr)


def asked(what: str) -> tuple[str, str]:
    kind, slash, name = what.partition("/")
    word = word_of(kind)
    if not slash or not name or "/" in name or word is None:
        raise Exit(USAGE, f"{what!r} is not an object; write KIND/NAME with one of the kinds {', '.join(KINDS)}")
    return word, name


PORT = 8082
"""The default port of a controller's reconcile history."""


class Source:
    """Where `sandpool why` reads: objects from the API server; reconcile history from the API of a local cluster (`running`), or from the
    address of a controller (`stories`)."""

    def __init__(self, client: Cluster, namespace: str, *, running: Running | None = None, stories: str = "") -> None:
        self._client, self._namespace, self._running, self._stories = client, namespace, running, _address(stories)

    def get(self, path: str) -> Any:
        """The JSON at a path; None if there is nothing, also if there is no reconcile history."""
        if path.startswith(f"{STORIES}/") and (self._stories or self._running is None):
            return self._remote_history(*map(unquote, path.removeprefix(f"{STORIES}/").split("/")))
        try:
            return self._client.get(path)
        except NotFound:
            return None
        except ApiError as error:
            if path.startswith(f"{STORIES}/"):  # a cluster without controllers
                return None
            raise Exit(FAILED, f"{self._client.resolved.cluster.server} answered: {error}") from error

    def _remote_history(self, namespace: str, controller: str, name: str) -> Any:
        if not self._stories or controller == "kubelet":
            return None
        import json
        from urllib.request import ProxyHandler, build_opener

        query = urlencode({"namespace": namespace, "controller": controller, "name": name})
        try:
            with build_opener(ProxyHandler({})).open(f"{self._stories}/stories?{query}", timeout=30) as answer:
                return json.loads(answer.read())
        except (URLError, OSError, ValueError) as error:
            raise Exit(FAILED, f"{self._stories} serves no reconcile history ({error}); {self._way()}") from error

    def silence(self, related_objects: Sequence[RelatedObject]) -> str:
        """Why there is no history of the first of these."""
        first = related_objects[0]
        if self._stories:
            return (
                f"the controller at {self._stories} has no history of {first}. Only the leading replica "
                f"records one; {self._way()}"
            )
        if self._running is not None:
            return nothing_remembered(related_objects, self._running)
        return f"the controller was not asked for its history of {first}; {self._way()}"

    def _way(self) -> str:
        pod = self._leader() or "POD-THAT-LEADS"
        return (
            f"run `kubectl -n {self._namespace} port-forward pod/{pod} {PORT}` and add --stories 127.0.0.1:{PORT}, or "
            "the port of --stories-bind-address"
        )

    def _leader(self) -> str:
        """The pod that holds the lease; empty if it cannot be read."""
        from sandpool.install.rules import LEASE
        from sandpool.model.kinds import LEASES

        try:
            lease = self.get(LEASES.path(self._namespace, LEASE)) or {}
        except (SandpoolError, Exit):
            return ""
        return str((lease.get("spec") or {}).get("holderIdentity") or "").partition("_")[0]


def _address(text: str) -> str:
    if not text:
        return ""
    host, _, port = text.removeprefix("http://").rstrip("/").rpartition(":")
    if not port.isdecimal() or "/" in host:
        raise Exit(USAGE, f"--stories {text!r} is not an address; write for example 127.0.0.1:{PORT}")
    return f"http://{host or '127.0.0.1'}:{port}"
