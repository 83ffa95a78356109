"""Who may use the router of a cluster on this machine: those whom its API server knows, and not a moment longer."""

from __future__ import annotations

import time
from pathlib import Path

from sandpool.app.local_router import local_callers
from sandpool.base.clock import SystemClock
from sandpool.controlplane.apiserver.auth import Authenticator
from support.api.local_server import local_server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


async def test_a_token_ends_at_once_with_its_account(tmp_path: Path) -> None:
    async with local_server(tmp_path) as server:
        callers = local_callers(
            Authenticator(server.token, server.access.signing_key, server.objects, time.time), SystemClock()
        )
        answer = await server.request("POST", f"{ACCOUNTS}/default/token", {"spec": {}})
        token = answer.json["status"]["token"]
        caller = await callers.authenticate(token)
        assert caller is not None
        assert await callers.may_use(caller, "default")
        assert not await callers.may_use(caller, "kube-system")
        assert await callers.authenticate("wrong") is None
        assert (await server.request("DELETE", f"{ACCOUNTS}/default")).status == 200
        assert await callers.authenticate(token) is None
