"""Who asks."""

from __future__ import annotations

import msgspec

from sandpool.base.shares import NOBODY, OPERATOR

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"


class User(msgspec.Struct, frozen=True, gc=False):
    """An authenticated user. `namespace` is the only one it may use; empty: it may do everything. `tenant` is on whose account it
    uses the server."""

    name: str
    uid: str
    groups: tuple[str, ...]
    namespace: str = ""
    extra: dict[str, list[str]] = {}
    tenant: str = OPERATOR

    @property
    def admin(self) -> bool:
        return MASTERS in self.groups


ANONYMOUS = User("system:anonymous", "", ("system:unauthenticated",), tenant=NOBODY)
ADMIN = User("kubernetes-admin", "kubernetes-admin", (MASTERS, AUTHENTICATED))


def service_account(namespace: str, name: str, uid: str, token_id: str) -> User:
    return User(
        f"system:serviceaccount:{namespace}:{name}",
        uid,
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED),
        namespace,
        {"authentication.kubernetes.io/credential-id": [f"JTI={token_id}"]},
        namespace,
    )
