"""Whom `sandpool why` asks: a cluster of this machine, which tells stories itself, or a Kubernetes cluster, whose objects the API
server shows to whoever may see them, and whose controller tells its stories on an address of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.error import URLError
from urllib.parse import unquote, urlencode
from urllib.request import ProxyHandler, build_opener

import msgspec

from sandpool.assembly.data_dir import DataDir
from sandpool.cli.chapters import STORIES, Chapter
from sandpool.cli.exits import FAILED, NOT_FOUND, USAGE, Exit
from sandpool.cli.http import request
from sandpool.cli.telling import nothing_remembered
from sandpool.kube.calls import Call
from sandpool.kube.config import Config
from sandpool.kube.errors import ApiError, NotFound, SandpoolError
from sandpool.kube.nearby import Running

NOT_IMPLEMENTED = 501
PORT = 8082
"""Where a controller tells its stories, by default."""


class Source(Protocol):
    def get(self, path: str) -> Any:
        """The JSON at a path; None where nothing is, also where no stories are kept."""
        ...

    def silence(self, chapters: Sequence[Chapter]) -> str:
        """Why there is no story of the first of these."""
        ...


class ThisMachine:
    def __init__(self, running: Running) -> None:
        self._running = running

    @classmethod
    def found(cls, directory: DataDir) -> ThisMachine:
        running = directory.read_running()
        if running is None:
            raise Exit(
                NOT_FOUND,
                f"no cluster runs in {directory.root}. Start one with `sandpool up`, or name a Kubernetes cluster with "
                "--kubeconfig.",
            )
        return cls(running)

    def get(self, path: str) -> Any:
        try:
            return request(self._running, "GET", path)
        except NotFound:
            return None
        except ApiError as error:
            if error.code == NOT_IMPLEMENTED:
                return None
            raise Exit(FAILED, f"{self._running.api} answered: {error}") from error

    def silence(self, chapters: Sequence[Chapter]) -> str:
        return nothing_remembered(chapters, self._running)


class Kubernetes(AbstractContextManager["Kubernetes"]):
    """`stories` is the controller's address; without it, objects, conditions and Events are all there is."""

    def __init__(self, config: Config, stories: str, namespace: str) -> None:
        from sandpool.kube.credentials import credentials_for
        from sandpool.kube.transport import Limits, Transport
        from sandpool.loop.clock import SystemClock

        self._config, self._stories, self._namespace = config, _address(stories), namespace
        self._runner = asyncio.Runner()
        self._transport = Transport(config.cluster, credentials_for(config, SystemClock(), os.environ), Limits())

    @classmethod
    def at(cls, kubeconfig: Path | None, context: str, stories: str, namespace: str) -> Kubernetes:
        from sandpool.kube.kubeconfig import load_config

        return cls(load_config(os.environ, Path.home(), path=kubeconfig, context=context), stories, namespace)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._runner.run(self._transport.close())
        self._runner.close()

    def get(self, path: str) -> Any:
        if path.startswith(f"{STORIES}/"):
            return self._story(*map(unquote, path.removeprefix(f"{STORIES}/").split("/")))
        try:
            return msgspec.json.decode(self._runner.run(self._transport.send(Call("GET", path))))
        except NotFound:
            return None
        except ApiError as error:
            raise Exit(FAILED, f"{self._config.cluster.server} answered: {error}") from error

    def _story(self, namespace: str, controller: str, name: str) -> Any:
        if not self._stories or controller == "kubelet":
            return None
        query = urlencode({"namespace": namespace, "controller": controller, "name": name})
        try:
            with build_opener(ProxyHandler({})).open(f"{self._stories}/stories?{query}", timeout=30) as answer:
                return msgspec.json.decode(answer.read())
        except (URLError, OSError, msgspec.DecodeError) as error:
            raise Exit(FAILED, f"{self._stories} tells no stories ({error}); {self._way()}") from error

    def silence(self, chapters: Sequence[Chapter]) -> str:
        first = chapters[0]
        if not self._stories:
            return f"what the controller remembers of {first} was not asked for; {self._way()}"
        return (
            f"the controller at {self._stories} remembers nothing of {first}. Only the replica that leads has something to "
            f"tell, since it leads; {self._way()}"
        )

    def _way(self) -> str:
        pod = self._leader() or "POD-THAT-LEADS"
        return (
            f"run `kubectl -n {self._namespace} port-forward pod/{pod} {PORT}` and add --stories 127.0.0.1:{PORT}, or "
            "whatever --stories-bind-address says"
        )

    def _leader(self) -> str:
        """The pod that holds the lease; nothing where that cannot be known."""
        from sandpool.assembly.installation.rules import LEASE
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
