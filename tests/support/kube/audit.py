"""What an API server wrote into its audit log: who asked for what, and how it was answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    apiGroup: str = ""
    namespace: str = ""
    name: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class _Entry(msgspec.Struct, frozen=True):
    verb: str
    user: _User = _User()
    userAgent: str = ""
    objectRef: _Reference = _Reference()
    responseStatus: _Status = _Status()


@dataclass(frozen=True, slots=True)
class Request:
    user: str
    verb: str
    group: str
    resource: str  # with its subresource, as in a role: `pods/status`
    namespace: str
    name: str
    code: int
    agent: str = ""  # the program, as it calls itself

    @property
    def writes(self) -> bool:
        return self.verb not in ("get", "list", "watch")

    @property
    def about(self) -> str:
        return f"{self.verb} {self.resource}"


_DECODE = msgspec.json.Decoder(_Entry).decode


class Audit:
    """Reads on from where `mark` was called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._from = 0

    def mark(self) -> None:
        self._from = self._path.stat().st_size

    def requests(self, user: str = "") -> Iterator[Request]:
        with self._path.open("rb") as file:
            file.seek(self._from)
            for line in file:
                if line.endswith(b"\n"):
                    entry = _DECODE(line)
                    if not user or entry.user.username == user:
                        yield _request(entry)

    def writes(self, user: str) -> Counter[str]:
        """By verb and resource; the lease, its own life and what was asked about permissions are not work."""
        return Counter(each.about for each in self.requests(user) if each.writes and not _aside(each))

    def refused(self, user: str, namespace: str = "") -> Counter[str]:
        """Writes that were not done, in all namespaces or in one, with the code of the answer."""
        return Counter(
            f"{each.about} {each.code}"
            for each in self.requests(user)
            if each.writes and each.code >= 400 and not _aside(each) and namespace in ("", each.namespace)
        )


def _request(entry: _Entry) -> Request:
    about = entry.objectRef
    resource = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
    return Request(
        entry.user.username,
        entry.verb,
        about.apiGroup,
        resource,
        about.namespace,
        about.name,
        entry.responseStatus.code,
        entry.userAgent,
    )


def _aside(request: Request) -> bool:
    return request.resource in ("leases", "selfsubjectaccessreviews")
