"""Credentials that change: token files, and plugins that are real executables."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandpool.base.secret import Secret
from sandpool.kube.config import Exec, InteractiveMode, Pem, User
from sandpool.kube.credentials import FromFiles, FromPlugin
from sandpool.kube.errors import ConfigError, Unauthorized
from sandpool.kube.http import HttpApi
from sandpool.kube.plugin import run_plugin
from sandpool.model.kinds import PODS
from sandpool.model.patches import merge_patch
from support.clocks.step_clock import StepClock
from support.network.scripted_peer import Act, answer, forever, scripted_peer

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}
V1 = "client.authentication.k8s.io/v1"
SECRET = "hunter2"


def only(token: str) -> Act:
    """A server that knows one token."""
    denied = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401}

    async def act(request: Any) -> Any:
        good = request.headers.get("Authorization") == f"Bearer {token}"
        return await (answer(POD) if good else answer(denied, 401))(request)

    return forever(act)


class Plugin:
    """An executable that notes how it was called and prints what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "login"
        self.path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys\n"
            f"folder = {str(folder)!r}\n"
            "note = {'args': sys.argv[1:], 'info': os.environ['KUBERNETES_EXEC_INFO'], 'extra': os.environ.get('EXTRA')}\n"
            "note['stdin'] = sys.stdin.read()\n"
            "open(folder + '/calls', 'a').write(json.dumps(note) + '\\n')\n"
            "sys.stdout.write(open(folder + '/output').read())\n"
        )
        self.path.chmod(0o755)

    def prints(self, status: dict[str, Any] | str, version: str = V1) -> None:
        body = {"kind": "ExecCredential", "apiVersion": version, "status": status}
        (self.folder / "output").write_text(status if isinstance(status, str) else json.dumps(body))

    @property
    def calls(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def spec(self, **changes: Any) -> Exec:
        known: dict[str, Any] = {"api_version": V1, "command": str(self.path), "interactive": InteractiveMode.NEVER}
        return Exec(**(known | changes))


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def test_a_token_file_is_read_again_after_a_refusal(
    tmp_path: Path, to: Callable[..., HttpApi], clock: StepClock
) -> None:
    (tmp_path / "token").write_text("old\n")
    async with scripted_peer(only("new")) as peer:
        api = to(peer.url, User(token_file=tmp_path / "token"))
        with pytest.raises(Unauthorized):
            await api.get(PODS, "a", "team")
        assert len(peer.seen) == 1, "the file says the same: nothing to try"
        (tmp_path / "token").write_text("new\n")
        await api.patch(PODS, "a", merge_patch({}), "team")
    assert [seen.headers["Authorization"] for seen in peer.seen[1:]] == ["Bearer old", "Bearer new"]
    assert clock.sleeps == []


async def test_a_token_file_is_read_again_after_a_minute(
    tmp_path: Path, to: Callable[..., HttpApi], clock: StepClock
) -> None:
    (tmp_path / "token").write_text("old")
    async with scripted_peer(forever(answer(POD))) as peer:
        api = to(peer.url, User(token_file=tmp_path / "token"))
        (tmp_path / "token").write_text("new")
        await api.get(PODS, "a", "team")
        clock.elapsed += 61
        await api.get(PODS, "a", "team")
        (tmp_path / "token").unlink()
        clock.elapsed += 61
        await api.get(PODS, "a", "team")
    assert [seen.headers["Authorization"] for seen in peer.seen] == ["Bearer old", "Bearer new", "Bearer new"]


@pytest.mark.parametrize(
    ("text", "message"), [(None, "the token is not there"), (" \n", "is empty"), (f"{SECRET}\nx", "cannot carry")]
)
def test_a_token_file_that_is_no_use(
    text: str | None, message: str, tmp_path: Path, to: Callable[..., HttpApi]
) -> None:
    if text is not None:
        (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        to("http://127.0.0.1:1", User(token_file=tmp_path / "token"))
    assert SECRET not in str(caught.value)


async def test_a_watch_renews_as_well(tmp_path: Path, to: Callable[..., HttpApi]) -> None:
    (tmp_path / "token").write_text("old")
    async with scripted_peer(only("new")) as peer:
        api = to(peer.url, User(token_file=tmp_path / "token"))
        (tmp_path / "token").write_text("new")
        async with api.watch(PODS):
            pass
    assert len(peer.seen) == 2


async def test_a_plugin_is_asked_once(plugin: Plugin, to: Callable[..., HttpApi]) -> None:
    plugin.prints({"token": SECRET})
    async with scripted_peer(only(SECRET)) as peer:
        api = to(peer.url, User(exec=plugin.spec(args=("get", "token"), env=(("EXTRA", "x"),))))
        await asyncio.gather(*(api.get(PODS, "a", "team") for _ in range(5)))
    (call,) = plugin.calls
    assert (call["args"], call["extra"], call["stdin"]) == (["get", "token"], "x", "")
    assert json.loads(call["info"]) == {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}
    assert len(peer.seen) == 5


async def test_a_refusal_asks_the_plugin_again_but_only_once_for_all(
    plugin: Plugin, to: Callable[..., HttpApi]
) -> None:
    plugin.prints({"token": "old"})
    async with scripted_peer(only("old"), only("new")) as peer:
        api = to(peer.url, User(exec=plugin.spec()))
        await api.get(PODS, "a", "team")
        plugin.prints({"token": "new"})
        await asyncio.gather(*(api.patch(PODS, "a", merge_patch({}), "team") for _ in range(5)))
    assert len(plugin.calls) == 2


async def test_a_plugin_that_keeps_giving_the_wrong_token(plugin: Plugin, to: Callable[..., HttpApi]) -> None:
    plugin.prints({"token": "wrong"})
    async with scripted_peer(only("right")) as peer:
        with pytest.raises(Unauthorized):
            await to(peer.url, User(exec=plugin.spec())).get(PODS, "a", "team")
    assert len(peer.seen) == 2, "tried again once, with what the plugin said then"
    assert len(plugin.calls) == 2


async def test_what_a_plugin_gave_is_kept_until_it_expires(plugin: Plugin, clock: StepClock) -> None:
    plugin.prints({"token": "one", "expirationTimestamp": "2026-01-01T00:10:00Z"})
    spec = plugin.spec()
    source = FromPlugin(User(exec=spec), spec, clock, {})
    first = await source.current()
    clock.elapsed = 580
    assert await source.current() is first
    plugin.prints({"token": "two", "expirationTimestamp": "2026-01-01T00:20:00+00:00"})
    clock.elapsed = 595  # in the last seconds it is not used any more
    assert dict((await source.current()).headers)["Authorization"] == "Bearer two"
    assert len(plugin.calls) == 2


async def test_a_plugin_of_the_older_version_that_is_told_about_the_cluster(plugin: Plugin) -> None:
    version = f"{V1}beta1"
    plugin.prints({"clientCertificateData": "CERT", "clientKeyData": SECRET}, version)
    issued = await run_plugin(plugin.spec(api_version=version, cluster={"server": "https://x"}), {})
    assert issued.token is None
    assert issued.certificate is not None
    assert issued.certificate.reveal() == "CERT"
    assert SECRET not in repr(issued)
    info = json.loads(plugin.calls[0]["info"])
    assert info["apiVersion"] == version
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://x"}}


async def test_a_bare_name_is_found_on_the_path(plugin: Plugin) -> None:
    plugin.prints({"token": "t"})
    issued = await run_plugin(plugin.spec(command="login"), {"PATH": str(plugin.folder)})
    assert issued.token == Secret("t")


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        (f"not json {SECRET}", "not JSON"),
        (f'["{SECRET}"]', "not an ExecCredential: Expected `object`"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": f"{V1}beta1", "status": {"token": SECRET}}), "instead of"),
        (json.dumps({"kind": "Other", "apiVersion": V1, "status": {"token": SECRET}}), "instead of"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": V1}), "neither status.token nor"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"clientKeyData": SECRET}}), "without"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": {"token": [SECRET]}}), "Expected `str"),
    ],
)
async def test_a_plugin_that_prints_something_else(printed: str, message: str, plugin: Plugin) -> None:
    plugin.prints(printed)
    with pytest.raises(ConfigError, match=message) as caught:
        await run_plugin(plugin.spec(), {})
    assert str(plugin.path) in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_plugin_that_fails(plugin: Plugin) -> None:
    plugin.path.write_text("#!/bin/sh\nexit 7\n")
    with pytest.raises(ConfigError, match="failed with exit code 7; run it by hand"):
        await run_plugin(plugin.spec(), {})


async def test_a_plugin_that_does_not_end(plugin: Plugin) -> None:
    plugin.path.write_text("#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(ConfigError, match="gave no answer within"):
        await run_plugin(plugin.spec(), {}, patience=0.1)


async def test_a_plugin_that_is_not_there(plugin: Plugin) -> None:
    with pytest.raises(ConfigError, match=r"no such executable; install it.*\(ask the platform team\)"):
        await run_plugin(plugin.spec(command="absent-plugin", install_hint="ask the platform team"), {})


async def test_a_plugin_that_is_not_executable_by_this_machine(plugin: Plugin) -> None:
    plugin.path.write_bytes(b"\x7fELFnonsense")
    with pytest.raises(ConfigError, match="cannot be run"):
        await run_plugin(plugin.spec(), {})


async def test_a_plugin_that_needs_a_terminal(plugin: Plugin) -> None:
    with pytest.raises(ConfigError, match="needs a terminal"):
        await run_plugin(plugin.spec(interactive=InteractiveMode.ALWAYS), {})


async def test_a_plugin_whose_caller_gives_up_is_ended(plugin: Plugin) -> None:
    plugin.path.write_text("#!/bin/sh\nexec sleep 1000\n")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await run_plugin(plugin.spec(), {})
    # The leak check of every test sees to it that no process is left.


async def test_certificate_files_are_read_again(tmp_path: Path, clock: StepClock) -> None:
    for name in ("crt", "key"):
        (tmp_path / name).write_text(f"old {name}")
    source = FromFiles(User(certificate=Pem(file=tmp_path / "crt"), key=Pem(file=tmp_path / "key")), clock)
    first = await source.current()
    assert not await source.renew(first)
    (tmp_path / "crt").write_text("new crt")
    assert await source.renew(first)
    second = await source.current()
    assert second.certificate is not None
    assert second.certificate.chain.reveal() == "new crt"
