"""`sandpool why` about an object of a real cluster: objects from the API server, the story from the replica that leads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from sandpool.model.kinds import CLAIMS
from support.kube.process import Controller
from support.kube.stage import Stage, User

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


async def why(stage: Stage, user: User, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = (f"--namespace={user.namespace}", f"--kubeconfig={stage.server.kubeconfig}")
    command = [sys.executable, "-m", "sandpool", "why", "claim/mine", *where, *arguments]
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)


def tells_at(one: Controller) -> str:
    (line,) = [line for line in one.lines("listening") if line["pages"] == "/stories"]
    return str(line["address"])


async def test_what_happened_to_a_claim(stage: Stage, racers: list[Controller], user: User) -> None:
    await user.template()
    await user.pool(1)
    await user.filled(1)
    await user.claim("mine")
    bound = (await user.served("mine"))["mine"]
    (leader,) = [one for one in racers if one.leads()]
    (other,) = [one for one in racers if one is not leader]
    told: dict[str, Any] = {}

    async def remembered() -> bool:
        """A reconcile is told of when it has ended, a moment after its last write."""
        done = await why(stage, user, "--stories", tells_at(leader), "-o", "json")
        assert done.returncode == 0, done.stderr
        told.update(msgspec.json.decode(done.stdout))
        return any("patch status of sandboxclaims/mine" in text for one in told["story"] for text in one["written"])

    await user.until(remembered, "the binding is told")
    assert [one["name"] for one in told["objects"]][:2] == ["mine", bound]
    in_words = await why(stage, user, "--stories", tells_at(leader))
    assert (in_words.returncode, in_words.stderr) == (0, "")
    assert f"sandbox {user.namespace}/{bound}" in in_words.stdout
    silent = await why(stage, user, "--stories", tells_at(other))
    assert "Only the leading replica records one" in silent.stderr


async def test_without_the_way_to_the_controller_it_says_which(
    stage: Stage, racers: list[Controller], user: User
) -> None:
    await user.create(CLAIMS, "mine", warmPoolRef={"name": "absent"})
    done = await why(stage, user)
    assert done.returncode == 0, done.stderr
    assert f"claim {user.namespace}/mine" in done.stdout
    assert "kubectl -n agent-sandbox-system port-forward pod/" in done.stderr
    wrong = await why(stage, user, "--stories", "127.0.0.1:1")
    assert wrong.returncode == 1
    assert "http://127.0.0.1:1 serves no reconcile history" in wrong.stderr
    assert "Traceback" not in wrong.stderr
