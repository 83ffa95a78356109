"""A real etcd and kube-apiserver on loopback, for one test run: started, filled with our CRDs, stopped by pid.

Everything (data, certificates, logs, the audit log) lives in one temporary folder that goes away with it. There are no nodes,
so pods stay Pending (support/kube/node.py is one). A kube-controller-manager collects garbage and finishes deleted namespaces;
with `accounts` it also makes service accounts and counts quotas, and pods need an account, as on any cluster. With `durable` etcd
syncs every write to the disk, which measurements want and tests do not. `flags` are further ones of the API server.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kube.build import find, missing
from support.kube.certificates import Authority

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager")
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "None", "nonResourceURLs": ["/*"]}, {"level": "Metadata"}],
}
START_TIMEOUT = 60.0
STOP_TIMEOUT = 15.0


class ServerFailed(Exception):
    """A server did not start; the message ends with the last lines that it logged."""


@dataclass
class KubeServer:
    url: str
    token: str
    folder: Path
    etcd_url: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)  # by name, to start one again

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """One plain request, for preparing a test; raises on anything but success."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {self.token}")
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            request.add_header("Content-Type", content_type)
        context = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, data=data, context=context, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def compact(self) -> None:
        """Makes etcd forget all history, as it does by itself every five minutes on a cluster."""
        status = self._etcd("/v3/maintenance/status", {})
        self._etcd("/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})

    def _etcd(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self.etcd_url + path, data=json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    @property
    def audit(self) -> Path:
        """One JSON object per line for every request that was answered; see support/kube/audit.py."""
        return self.folder / "audit.log"

    def restart(self, name: str, *, kill: bool = True) -> None:
        """Ends one of the servers, at once or in order, and starts it again on the same port and the same data."""
        place = list(self.commands).index(name)
        process = self.processes[place]
        process.kill() if kill else process.terminate()
        process.wait(STOP_TIMEOUT)
        self.processes[place] = _spawn(self, name)
        _wait_ready(self)

    def log(self, name: str) -> str:
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-15:])

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def lacking() -> str:
    """Why no server can be started here; empty when one can."""
    absent = missing(NEEDED)
    if not absent:
        return ""
    return f"{', '.join(absent)} not found: run `python tests/kube/build.py` or set KUBEBUILDER_ASSETS"


@contextlib.contextmanager
def running(
    *,
    controllers: bool = True,
    accounts: bool = False,
    crds: Path = CRDS,
    durable: bool = False,
    flags: Sequence[str] = (),
) -> Iterator[KubeServer]:
    server = start(controllers=controllers, accounts=accounts, crds=crds, durable=durable, flags=flags)
    try:
        yield server
    finally:
        server.stop()


def start(
    *,
    controllers: bool = True,
    accounts: bool = False,
    crds: Path = CRDS,
    durable: bool = False,
    flags: Sequence[str] = (),
) -> KubeServer:
    folder = Path(tempfile.mkdtemp(prefix="sandpool-kube-", dir="/var/tmp" if durable else None))  # /tmp may be memory
    client_port, peer_port, api_port = _free_ports(3)
    server = KubeServer(
        url=f"https://127.0.0.1:{api_port}",
        token=secrets.token_urlsafe(24),
        folder=folder,
        etcd_url=f"http://127.0.0.1:{client_port}",
    )
    try:
        _write_credentials(server)
        _launch(server, "etcd", _etcd_flags(server, peer_port, durable))
        _launch(server, "kube-apiserver", [*_apiserver_flags(server, api_port, accounts), *flags])
        _wait_ready(server)
        apply_crds(server, crds)
        if controllers:  # last: its collector looks for new kinds only every 30 s
            _launch(server, "kube-controller-manager", _controller_flags(server, accounts))
    except BaseException:
        server.stop()
        raise
    return server


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _write_credentials(server: KubeServer) -> None:
    authority = Authority("sandpool test CA")
    authority.write_ca(server.folder / "ca")
    authority.write_server(
        server.folder / "server", names=["localhost", "kubernetes.default.svc"], addresses=["127.0.0.1"]
    )
    authority.write_signing_key(server.folder / "accounts")
    authority.write_client(server.folder / "ended", "late", ended=True)
    (server.folder / "tokens.csv").write_text(f'{server.token},admin,admin,"system:masters"\n')
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {"name": "test", "cluster": {"server": server.url, "certificate-authority": str(server.ca)}},
        ],
        "users": [{"name": "admin", "user": {"token": server.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
    }
    server.kubeconfig.write_text(yaml.safe_dump(config))


def _etcd_flags(server: KubeServer, peer_port: int, durable: bool) -> list[str]:
    peer = f"http://127.0.0.1:{peer_port}"
    return [
        f"--data-dir={server.folder / 'etcd'}",
        f"--listen-client-urls={server.etcd_url}",
        f"--advertise-client-urls={server.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *([] if durable else ["--unsafe-no-fsync"]),  # the data dies with the test
        "--log-level=warn",
    ]


def _apiserver_flags(server: KubeServer, port: int, accounts: bool) -> list[str]:
    policy = server.folder / "audit.yaml"
    policy.write_text(yaml.safe_dump(AUDIT))
    # That plugin's job needs the controllers that make accounts; without them it would refuse every pod.
    plugins = (
        ["--enable-admission-plugins=OwnerReferencesPermissionEnforcement"]  # the strictest that a cluster may have
        if accounts
        else ["--disable-admission-plugins=ServiceAccount"]
    )
    return [
        *plugins,
        f"--audit-policy-file={policy}",
        f"--audit-log-path={server.audit}",
        "--audit-log-mode=blocking-strict",  # what was answered is in the log
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--etcd-servers={server.etcd_url}",
        f"--tls-cert-file={server.folder / 'server.crt'}",
        f"--tls-private-key-file={server.folder / 'server.key'}",
        f"--client-ca-file={server.ca}",
        f"--token-auth-file={server.folder / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={server.folder / 'accounts.pub'}",
        f"--service-account-signing-key-file={server.folder / 'accounts.key'}",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--endpoint-reconciler-type=none",  # it refuses to advertise a loopback address
        "--profiling=false",
    ]


def _controller_flags(server: KubeServer, accounts: bool) -> list[str]:
    controllers = ["garbage-collector-controller", "namespace-controller"]
    if accounts:
        controllers += ["serviceaccount-controller", "resourcequota-controller"]
        controllers += ["persistentvolumeclaim-protection-controller"]  # or claims of volumes would never leave
    return [
        f"--kubeconfig={server.kubeconfig}",
        f"--authentication-kubeconfig={server.kubeconfig}",
        f"--authorization-kubeconfig={server.kubeconfig}",
        f"--controllers={','.join(controllers)}",
        "--secure-port=0",
        "--leader-elect=false",
        "--profiling=false",
    ]


def _launch(server: KubeServer, name: str, flags: Sequence[str]) -> None:
    binary = find(name)
    if binary is None:
        raise ServerFailed(lacking())
    server.commands[name] = [str(binary), *flags]
    server.processes.append(_spawn(server, name))


def _spawn(server: KubeServer, name: str) -> subprocess.Popen[bytes]:
    with (server.folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(server.commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _wait_ready(server: KubeServer) -> None:
    wait_for(server, "kube-apiserver", lambda: server.request("GET", "/readyz") == "ok")


def wait_for(server: KubeServer, name: str, check: Any) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    trouble = "no answer"
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in server.processes):
            break
        try:
            if check():
                return
        except (OSError, urllib.error.URLError) as error:
            trouble = str(error)
        time.sleep(0.05)
    raise ServerFailed(f"{name} is not ready ({trouble}):\n{server.log('etcd')}\n{server.log('kube-apiserver')}")


def apply_crds(server: KubeServer, folder: Path) -> None:
    """Creates each CRD of the folder and waits until its objects are served."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    for file in sorted(folder.glob("*.yaml")):
        for document in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):
            names.append(document["metadata"]["name"])
            server.request("POST", path, document)
    for name in names:
        wait_for(server, name, lambda name=name: _served(server, server.request("GET", f"{path}/{name}")))


def _served(server: KubeServer, crd: Any) -> bool:
    conditions = {c["type"]: c["status"] for c in crd.get("status", {}).get("conditions") or ()}
    if conditions.get("Established") != "True":
        return False
    spec = crd["spec"]
    version = next(v["name"] for v in spec["versions"] if v["storage"])
    # Established says that it soon will be served; a list says that it is.
    server.request("GET", f"/apis/{spec['group']}/{version}/{spec['names']['plural']}")
    return True
