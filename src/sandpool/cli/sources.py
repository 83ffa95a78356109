"""Whom `sandpool why` asks: the API server for objects, and for stories either the same one (a cluster of this machine tells them
itself) or a controller, which tells its stories on an address of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import unquote, urlencode

from sandpool.base.errors import SandpoolError
from sandpool.cli.chapters import STORIES, Chapter
from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.telling import nothing_remembered
from sandpool.kube.errors import ApiError, NotFound

if TYPE_CHECKING:
    from sandpool.kube.local_discovery import Running
    from sandpool.sdk._sync.cluster import Cluster

PORT = 8082
"""Where a controller tells its stories, by default."""


class Source:
    """`running` is the cluster of this machine, if it is that one; `stories` the address of a controller, or nothing."""

    def __init__(self, client: Cluster, namespace: str, *, running: Running | None = None, stories: str = "") -> None:
        self._client, self._namespace, self._running, self._stories = client, namespace, running, _address(stories)

    def get(self, path: str) -> Any:
        """The JSON at a path; None where nothing is, also where no stories are told."""
        if path.startswith(f"{STORIES}/") and (self._stories or self._running is None):
            return self._story(*map(unquote, path.removeprefix(f"{STORIES}/").split("/")))
        try:
            return self._client.get(path)
        except NotFound:
            return None
        except ApiError as error:
            if path.startswith(f"{STORIES}/"):  # a cluster without controllers
                return None
            raise Exit(FAILED, f"{self._client.resolved.cluster.server} answered: {error}") from error

    def _story(self, namespace: str, controller: str, name: str) -> Any:
        if not self._stories or controller == "kubelet":
            return None
        import json
        from urllib.request import ProxyHandler, build_opener

        query = urlencode({"namespace": namespace, "controller": controller, "name": name})
        try:
            with build_opener(ProxyHandler({})).open(f"{self._stories}/stories?{query}", timeout=30) as answer:
                return json.loads(answer.read())
        except (URLError, OSError, ValueError) as error:
            raise Exit(FAILED, f"{self._stories} tells no stories ({error}); {self._way()}") from error

    def silence(self, chapters: Sequence[Chapter]) -> str:
        """Why there is no story of the first of these."""
        first = chapters[0]
        if self._stories:
            return (
                f"the controller at {self._stories} remembers nothing of {first}. Only the replica that leads has something "
                f"to tell, since it leads; {self._way()}"
            )
        if self._running is not None:
            return nothing_remembered(chapters, self._running)
        return f"what the controller remembers of {first} was not asked for; {self._way()}"

    def _way(self) -> str:
        pod = self._leader() or "POD-THAT-LEADS"
        return (
            f"run `kubectl -n {self._namespace} port-forward pod/{pod} {PORT}` and add --stories 127.0.0.1:{PORT}, or "
            "whatever --stories-bind-address says"
        )

    def _leader(self) -> str:
        """The pod that holds the lease; nothing where that cannot be known."""
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
