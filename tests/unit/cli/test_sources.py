"""Whom `sandpool why` asks about a Kubernetes cluster: the API server for objects, the controller for what it remembers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sandpool.cli.exits import FAILED, USAGE, Exit
from sandpool.cli.history import RelatedObject
from sandpool.cli.why import Source
from sandpool.install.rules import LEASE
from sandpool.sdk._sync.connection import Connection
from sandpool.sdk.config import Config

NAMESPACE = "system"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}"
CLAIM = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/n/sandboxclaims/c"
STORY = "/stories?namespace=n&controller=claim&name=c"
CHAPTER = RelatedObject("claim", "n", "c", {})


@contextmanager
def serving(pages: dict[str, Any]) -> Iterator[str]:
    """Answers by path; what is not there with the status that an API server has for it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, {"kind": "Status", "code": 404, "reason": "NotFound"})
            data = json.dumps(body).encode()
            self.send_response(body.get("code", 200) if body.get("kind") == "Status" else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            return None

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def source(server: str, stories: str = "") -> Iterator[Source]:
    with Connection(Config(api=f"http://{server}")) as connection:
        yield Source(connection.cluster, NAMESPACE, stories=stories)


def test_objects_come_from_the_server_and_stories_from_the_controller() -> None:
    with (
        serving({CLAIM: {"metadata": {"name": "c"}}}) as server,
        serving({STORY: {"entries": [1]}}) as controller,
        source(server, controller) as asked,
    ):
        assert asked.get(CLAIM) == {"metadata": {"name": "c"}}
        assert asked.get(CLAIM + "x") is None
        assert asked.get("/sandpool/stories/n/claim/c") == {"entries": [1]}
        assert asked.get("/sandpool/stories/n/kubelet/c") is None  # a cluster's kubelets tell us nothing


def test_the_way_to_the_replica_that_leads_is_shown() -> None:
    lease = {"spec": {"holderIdentity": "sandpool-controller-1_0000"}}
    with serving({LEASES: lease}) as server:
        with source(server) as asked:
            assert asked.get("/sandpool/stories/n/claim/c") is None
            assert "kubectl -n system port-forward pod/sandpool-controller-1 8082" in asked.silence([CHAPTER])
        with source(server, "127.0.0.1:1") as asked, pytest.raises(Exit, match="port-forward") as raised:
            asked.get("/sandpool/stories/n/claim/c")
        assert raised.value.code == FAILED


def test_who_leads_may_be_unknown_or_secret() -> None:
    forbidden = {"kind": "Status", "code": 403, "reason": "Forbidden"}
    for pages in ({}, {LEASES: forbidden}):
        with serving(pages) as server, source(server) as asked:
            assert "port-forward pod/POD-THAT-LEADS" in asked.silence([CHAPTER])


def test_what_the_server_refuses_is_told() -> None:
    with serving({CLAIM: {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not you"}}) as server:
        with source(server) as asked, pytest.raises(Exit, match="not you") as raised:
            asked.get(CLAIM)
        assert raised.value.code == FAILED


@pytest.mark.parametrize("text", ["x", "127.0.0.1", "https://a/b:1", "http://h/p:8"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(Exit, match="--stories") as raised, source("127.0.0.1:1", text):
        pass
    assert raised.value.code == USAGE
