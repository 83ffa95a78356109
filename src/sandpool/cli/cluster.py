"""The cluster that a command talks to: the SDK's client, addressed by kind, namespace and name.

A missing object ends the command with exit code 3 and a hint. Deadlines are times of the monotonic clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sandpool.cli.exits import FAILED, NOT_FOUND, Exit
from sandpool.cli.kinds import Kind, plural, word
from sandpool.kube.errors import NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from sandpool.cli.cluster_flags import ClusterFlags
    from sandpool.kube.local_discovery import Running
    from sandpool.sdk._sync.connection import Connection
    from sandpool.sdk.config import Config

Json = dict[str, Any]
_UNSERVED = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True)
class Until:
    """A deadline; None: no limit."""

    at: float | None

    @property
    def left(self) -> float | None:
        return None if self.at is None else max(0.0, self.at - time.monotonic())


class Cluster:
    def __init__(self, connection: Connection, data_dir: Path | None = None) -> None:
        self.connection = connection
        self._data_dir = data_dir
        self._client = connection.cluster

    @property
    def namespace(self) -> str:
        """The namespace of a command that names none."""
        return self._client.resolved.namespace

    @property
    def server(self) -> str:
        return self._client.resolved.cluster.server

    @property
    def running(self) -> Running | None:
        """The local cluster, if the commands use that one."""
        from sandpool.kube.local_discovery import default_data_dir, read_running

        found = read_running(self._data_dir or default_data_dir())
        return found if found is not None and found.api.rstrip("/") == self.server else None

    def deadline(self, timeout: float | None) -> Until:
        return Until(None if timeout is None else time.monotonic() + timeout)

    def get(self, kind: Kind, namespace: str, name: str) -> Json:
        """Exits with 3 if it does not exist."""
        try:
            return self._client.get(path(kind, namespace, name))
        except NotFound as error:
            raise absent(error, kind, namespace, name) from error

    def read(self, path: str) -> Json:
        """Any path. Raises NotFound."""
        return self._client.get(path)

    def list(self, kind: Kind, namespace: str = "", *, labels: str = "", fields: str = "") -> Json:
        try:
            return self._client.list(path(kind, namespace), labels=labels, fields=fields)
        except NotFound as error:
            raise absent(error, kind, namespace) from error

    def table(self, kind: Kind, namespace: str, name: str = "", *, labels: str = "", fields: str = "") -> Json:
        """A Table; with names and ages only if the server does not serve tables."""
        try:
            if name:
                found = self._client.get(path(kind, namespace, name), as_table=True)
            else:
                found = self._client.list(path(kind, namespace), labels=labels, fields=fields, as_table=True)
        except NotFound as error:
            raise absent(error, kind, namespace, name) from error
        if found.get("kind") != "Table":
            raise Exit(FAILED, f"{self.server} does not serve tables; use -o json, yaml or name")
        found["rows"] = found.get("rows") or []
        return found

    def watch(
        self,
        kind: Kind,
        namespace: str,
        *,
        since: str,
        labels: str = "",
        fields: str = "",
        table: bool = False,
        until: Until = Until(None),
    ) -> Iterator[Json]:
        """Watch events as plain JSON, until the deadline. Raises Gone if the revision was compacted."""
        with self._client.watch(
            path(kind, namespace), labels=labels, fields=fields, since=since, as_table=table, timeout=until.left
        ) as events:
            for event in events:
                yield {"type": event.type, "object": event.object}

    def create(self, kind: Kind, namespace: str, body: Json) -> Json:
        whole = {"apiVersion": kind.api_version, "kind": kind.kind, **body}
        try:
            return self._client.create(path(kind, namespace), whole)
        except NotFound as error:
            raise absent(error, kind, namespace) from error

    def patch(self, kind: Kind, namespace: str, name: str, body: Json) -> Json:
        """A merge patch. Exits with 3 if the object does not exist."""
        try:
            return self._client.patch(path(kind, namespace, name), body)
        except NotFound as error:
            raise absent(error, kind, namespace, name) from error

    def apply(self, path: str, body: bytes, content_type: str, manager: str) -> None:
        """Creates or updates an object with a server-side apply."""
        from sandpool.sdk.api_paths import with_query

        self._client.request(
            "PATCH", with_query(path, {"fieldManager": manager}), (("Content-Type", content_type),), body
        )

    def delete(self, kind: Kind, namespace: str, name: str) -> Json:
        """Raises NotFound."""
        return self._client.delete(path(kind, namespace, name))

    def set_operating_mode(self, name: str, uid: str, mode: str, timeout: float) -> None:
        """Sets the mode of exactly this sandbox, and waits until it is reached."""
        from sandpool.sdk._sync.operating_mode import set_operating_mode

        set_operating_mode(self._client, self.namespace, name, uid, mode, timeout)

    @contextmanager
    def stream(self, path: str) -> Iterator[Iterator[bytes]]:
        """The response of a path as a stream."""
        with self._client.stream("GET", path) as answer:
            yield iter(answer)


def path(kind: Kind, namespace: str = "", name: str = "", subresource: str = "") -> str:
    return kind.path(quote(namespace, safe=""), quote(name, safe=""), subresource)


def absent(error: NotFound, kind: Kind, namespace: str, name: str = "") -> Exit:
    """The message for a 404: the object, its namespace, or the kind itself does not exist."""
    if _UNSERVED in str(error) or (not name and "namespace" not in str(error)):
        return Exit(
            FAILED,
            f"this cluster does not know {plural(kind)} ({kind.group_resource}). `sandpool install` installs them",
        )
    where = f" in namespace {namespace}" if namespace and kind.namespaced else ""
    if not name:
        return Exit(NOT_FOUND, f"{error}; `sandpool get namespaces` lists the existing ones")
    return Exit(
        NOT_FOUND, f"there is no {word(kind)} {name!r}{where}; `sandpool get {plural(kind)} -A` lists the existing ones"
    )


@contextmanager
def connected(where: ClusterFlags) -> Iterator[Cluster]:
    """The cluster that the flags name. Connects on first use."""
    from sandpool.sdk._sync.connection import Connection

    where.validate()
    with Connection(config_of(where)) as connection:
        yield Cluster(connection, where.data_dir)


def config_of(where: ClusterFlags) -> Config:
    """The flags as a Config. The SDK reads the variables, except the one for the context, which a flag for another cluster overrides."""
    from sandpool.sdk.config import Config

    named = where.kubeconfig is not None or where.data_dir is not None
    return Config(
        namespace=where.namespace,
        kubeconfig=where.kubeconfig or "",
        context=where.context or ("" if named else os.environ.get("SANDPOOL_CONTEXT", "")),
        data_dir=where.data_dir or "",
    )
