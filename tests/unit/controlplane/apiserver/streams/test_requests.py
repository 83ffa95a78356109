"""What a request for a stream asks for, and the words with which it is refused."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.request import parse_query
from sandpool.controlplane.apiserver.streams import pod as pods
from sandpool.controlplane.apiserver.streams.options import CommandOptions, command_options, log_options, ports
from sandpool.controlplane.apiserver.streams.upgrade import (  # type: ignore[attr-defined]
    COMMAND_SOCKETS,
    COMMAND_STREAMS,
    UpgradeChoice,
    UpgradeRequired,
    accept_key,
    negotiate_upgrade,
)
from sandpool.kube.errors import ApiError, BadRequest, Forbidden, Invalid

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


# Options.


def command(query: str, *, needs_command: bool = True) -> CommandOptions:
    return command_options(parse_query(query.encode()), query.encode(), needs_command=needs_command)


def test_a_command_keeps_its_words() -> None:
    options = command("command=sh&command=-c&command=echo%20a%26b+c&command=&command=%C3%A9%FF&stdout=true&container=x")
    assert options.argv == ("sh", "-c", "echo a&b c", "", "é\udcff")
    assert (options.container, options.stdin, options.stdout, options.stderr) == ("x", False, True, False)


def test_a_terminal_has_one_output() -> None:
    options = command("command=sh&tty=true&stdin=1&stdout=1&stderr=1")
    assert (options.tty, options.stdin, options.stdout, options.stderr) == (True, True, True, False)


def test_attach_shows_both_outputs_unless_told_otherwise() -> None:
    assert command("", needs_command=False) == CommandOptions(stdout=True, stderr=True)
    assert command("stderr=false", needs_command=False) == CommandOptions(stdout=True)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("command=ls", "you must specify at least 1 of stdin, stdout, stderr"),
        ("stdout=true", "you must specify at least one command for exec"),
        ("stdout=true&command=a%00b", "zero byte"),
    ],
)
def test_commands_that_are_refused(query: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        command(query)


def logs(query: str) -> Any:
    return log_options(parse_query(query.encode()), "box", NOW)


def test_options_of_a_log() -> None:
    options = logs("follow=true&previous=1&timestamps=true&tailLines=5&limitBytes=10&sinceSeconds=60&container=c")
    assert (options.follow, options.previous, options.timestamps, options.container) == (True, True, True, "c")
    assert (options.tail, options.limit, options.since) == (5, 10, NOW - timedelta(seconds=60))
    assert logs("sinceTime=2026-01-01T00:00:00Z").since == datetime(2026, 1, 1, tzinfo=UTC)
    assert logs("sinceSeconds=999999999999999").since is None


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("tailLines=-1", 'PodLogOptions "box" is invalid: tailLines: Invalid value: -1: must be greater than or equal'),
        ("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=5&sinceTime=2026-01-01T00:00:00Z", "at most one of `sinceTime` or `sinceSeconds`"),
        ("stream=Stdout", 'stream: Unsupported value: "Stdout"'),
    ],
)
def test_logs_that_are_refused(query: str, words: str) -> None:
    with pytest.raises(Invalid) as raised:
        logs(query)
    assert words in raised.value.message


@pytest.mark.parametrize("query", ["sinceTime=yesterday", "tailLines=many"])
def test_logs_that_cannot_be_read(query: str) -> None:
    with pytest.raises(BadRequest):
        logs(query)


def test_ports() -> None:
    assert ports(b"ports=80&x=1&ports=8080,9090", 5) == (80, 8080, 9090)
    for query in (b"", b"ports=0", b"ports=65536", b"ports=http", b"ports=1&ports=2&ports=3", b"ports=999999999999"):
        with pytest.raises(BadRequest):
            ports(query, 2)


# Pods.

RUNNING: dict[str, Any] = {"running": {}}
ENDED = {"terminated": {"exitCode": 1}}


def pod(
    *names: str,
    state: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None,
    init: tuple[str, ...] = (),
    **more: Any,
) -> pods.StreamedPod:
    shown = [{"name": n, "state": state or {}, "lastState": last or {}} for n in names if state is not None]
    body = {
        "metadata": {"name": "box", "annotations": more.get("annotations", {})},
        "spec": {
            "nodeName": more.get("node", "here"),
            "containers": [{"name": n} for n in names],
            "initContainers": [{"name": n} for n in init],
        },
        "status": {"phase": more.get("phase", "Running"), "containerStatuses": shown},
    }
    return pods.view(msgspec.json.encode(body))


def test_which_container() -> None:
    assert pods.container_of(pod("a"), "") == "a"
    assert pods.container_of(pod("a", "b"), "b") == "b"
    assert pods.container_of(pod("a", init=("i",)), "i") == "i"
    default = {pods.DEFAULT_CONTAINER: "b"}
    assert pods.container_of(pod("a", "b", annotations=default), "") == "b"


@pytest.mark.parametrize(
    ("view", "asked", "words"),
    [
        (pod("a"), "x", "container x is not valid for pod box"),
        (pod("a", "b"), "", "a container name must be specified for pod box, choose one of: [a b]"),
        (
            pod("a", "b", init=("i",)),
            "",
            "a container name must be specified for pod box, choose one of: [a b] or one of the init containers: [i]",
        ),
        (
            pod("a", "b", annotations={pods.DEFAULT_CONTAINER: "gone"}),
            "",
            "a container name must be specified for pod box, choose one of: [a b]",
        ),
    ],
)
def test_no_such_container(view: pods.StreamedPod, asked: str, words: str) -> None:
    with pytest.raises(BadRequest) as raised:
        pods.container_of(view, asked)
    assert raised.value.message == words


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (pod("a", node=""), "pod box does not have a host assigned"),
        (
            pod("a", phase="Succeeded"),
            "cannot exec into a container in a completed pod; current phase is Succeeded",
        ),
        (pod("a"), 'cannot exec into container "a" in pod "box": it is waiting to start: ContainerCreating'),
        (
            pod("a", state={"waiting": {"reason": "CrashLoopBackOff"}}),
            'cannot exec into container "a" in pod "box": it is waiting to start: CrashLoopBackOff',
        ),
        (
            pod("a", state=ENDED),
            'cannot exec into container "a" in pod "box": it has terminated; look at its exit code in the pod\'s status',
        ),
    ],
)
def test_containers_that_do_not_run(view: pods.StreamedPod, words: str) -> None:
    with pytest.raises(BadRequest) as raised:
        pods.check_running(view, "a", "exec into")
    assert raised.value.message == words


def test_containers_that_run() -> None:
    pods.check_running(pod("a", state=RUNNING), "a", "exec into")
    pods.check_logged(pod("a", state=RUNNING), "a", previous=False)
    pods.check_logged(pod("a", state=ENDED, phase="Failed"), "a", previous=False)
    pods.check_logged(pod("a", state={"waiting": {"reason": "CrashLoopBackOff"}}, last=ENDED), "a", previous=False)
    pods.check_logged(pod("a", state=RUNNING, last=ENDED), "a", previous=True)


@pytest.mark.parametrize(
    ("view", "previous", "words"),
    [
        (pod("a"), False, 'container "a" in pod "box" is waiting to start: ContainerCreating'),
        (
            pod("a", state={"waiting": {"reason": "ContainerCreating"}}),
            False,
            'container "a" in pod "box" is waiting to start: ContainerCreating',
        ),
        (
            pod("a", state={"waiting": {"reason": "ErrImagePull"}}),
            False,
            'container "a" in pod "box" is waiting to start: image can\'t be pulled',
        ),
        (
            pod("a", state={"waiting": {"reason": "ImagePullBackOff"}}),
            False,
            'container "a" in pod "box" is waiting to start: trying and failing to pull image',
        ),
        (pod("a", state={}), False, 'container "a" in pod "box" is waiting to start - no logs yet'),
        (pod("a", state=RUNNING), True, 'previous terminated container "a" in pod "box" not found'),
    ],
)
def test_nothing_to_show(view: pods.StreamedPod, previous: bool, words: str) -> None:
    with pytest.raises(BadRequest) as raised:
        pods.check_logged(view, "a", previous=previous)
    assert raised.value.message == words


# Upgrades.

KEY = base64.b64encode(b"0123456789abcdef")
SOCKET = [
    (b"connection", b"keep-alive, Upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", KEY),
]
SPDY = [(b"connection", b"Upgrade"), (b"upgrade", b"SPDY/3.1")]


def asked(*headers: tuple[bytes, bytes]) -> UpgradeChoice:
    return negotiate_upgrade(list(headers), COMMAND_SOCKETS, COMMAND_STREAMS)


def test_the_key_of_the_rfc() -> None:
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_the_first_protocol_that_is_served_is_chosen() -> None:
    granted = asked(
        *SOCKET, (b"sec-websocket-protocol", b"v9.x, v4.channel.k8s.io"), (b"sec-websocket-protocol", b"v5")
    )
    assert (granted.websocket, granted.protocol) == (True, "v4.channel.k8s.io")
    assert (b"sec-websocket-protocol", b"v4.channel.k8s.io") in granted.headers
    assert asked(*SOCKET).protocol == ""
    offered = [
        (b"x-stream-protocol-version", name.encode()) for name in ("nope", "v4.channel.k8s.io", "channel.k8s.io")
    ]
    granted = asked(*SPDY, *offered)
    assert (granted.websocket, granted.protocol) == (False, "v4.channel.k8s.io")
    assert granted.headers == [(b"upgrade", b"SPDY/3.1"), (b"x-stream-protocol-version", b"v4.channel.k8s.io")]


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ([], BadRequest),
        ([(b"upgrade", b"websocket")], BadRequest),
        ([(b"connection", b"upgrade"), (b"upgrade", b"h2c")], BadRequest),
        ([h for h in SOCKET if h[0] != b"sec-websocket-key"], BadRequest),
        ([*SOCKET[:3], (b"sec-websocket-key", b"short")], BadRequest),
        ([h for h in SOCKET if h[0] != b"sec-websocket-version"], UpgradeRequired),
        ([*SOCKET, (b"sec-websocket-protocol", b"chat")], Forbidden),
        ([*SPDY, (b"x-stream-protocol-version", b"v9")], Forbidden),
    ],
)
def test_upgrades_that_are_refused(headers: list[tuple[bytes, bytes]], error: type[ApiError]) -> None:
    with pytest.raises(error):
        asked(*headers)
