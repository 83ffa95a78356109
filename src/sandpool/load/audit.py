"""Reads the audit log of a kube-apiserver (JSON lines), from its end before the run on.

Only requests in the run's namespace count. They are attributed by user: nodes and the cluster's own controllers are separate, requests
of users for claims are theirs, and the rest are requests of the controllers of this API.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sandpool.load.errors import LoadError

_SYSTEM = (
    "system:node:",
    "system:serviceaccount:kube-system:",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:apiserver",
)
_OF_NODES = {"pods/status", "pods/binding"}
"""Resources that only kubelets and schedulers write, whatever their user."""
_READS = {"get", "list", "watch"}


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    verb: str = ""
    stage: str = "ResponseComplete"
    user: _User = _User()
    object_ref: _Reference = _Reference()
    response_status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    component: str  # controllers, users, system
    verb: str
    resource: str
    code: int

    @property
    def writes(self) -> bool:
        return self.verb not in _READS

    @property
    def kind(self) -> str:
        return f"{self.verb} {self.resource}"


_DECODE = msgspec.json.Decoder(_Entry).decode


class AuditLog:
    def __init__(self, path: Path, user: str = "") -> None:
        """With `user`, only requests of this user count as the controllers'."""
        self._path = path
        self._user = user
        self._from = 0
        self.mark()

    def mark(self) -> None:
        """Skips everything that was written until now."""
        try:
            self._from = self._path.stat().st_size
        except OSError as error:
            raise LoadError(
                f"--audit-log {self._path}: {error.strerror}; name the file that kube-apiserver writes"
            ) from error

    def requests(self, namespace: str) -> Iterator[AuditedRequest]:
        with self._path.open("rb") as file:
            file.seek(self._from)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                try:
                    entry = _DECODE(line)
                except msgspec.DecodeError as error:
                    raise LoadError(f"--audit-log {self._path}: {error}; it must be lines of JSON") from error
                about = entry.object_ref
                if about.namespace == namespace and entry.stage == "ResponseComplete":
                    yield self._request(entry)

    def _request(self, entry: _Entry) -> AuditedRequest:
        about = entry.object_ref
        resource = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
        return AuditedRequest(self._component(entry, resource), entry.verb, resource, entry.response_status.code)

    def _component(self, entry: _Entry, resource: str) -> str:
        user = entry.user.username
        if self._user:
            return "controllers" if user == self._user else "others"
        if user.startswith(_SYSTEM) or resource in _OF_NODES:
            return "system"
        if resource == "sandboxclaims" and entry.verb in {"create", "delete", "deletecollection", "list", "watch"}:
            return "users"
        return "controllers"
