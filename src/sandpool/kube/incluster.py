"""The configuration that Kubernetes gives to every pod: a service account's token, the CA and two variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sandpool.kube.config import Cluster, Config, User
from sandpool.kube.errors import ConfigError
from sandpool.kube.files import read_text

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def inside_cluster(env: Mapping[str, str]) -> bool:
    return bool(env.get("KUBERNETES_SERVICE_HOST") and env.get("KUBERNETES_SERVICE_PORT"))


def load_in_cluster(env: Mapping[str, str], mount: Path = SERVICE_ACCOUNT) -> Config:
    if not inside_cluster(env):
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this process does not run in a pod; "
            "use a kubeconfig instead"
        )
    host, port = env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]
    host = f"[{host}]" if ":" in host else host
    hint = "let the pod mount its service account (automountServiceAccountToken)"
    ca = read_text(mount / "ca.crt", "the cluster's CA", hint)
    read_text(mount / "token", "the service account's token", hint)  # fail now, not at the first request
    try:
        namespace = (mount / "namespace").read_text().strip()
    except OSError:
        namespace = ""
    return Config(
        cluster=Cluster(server=f"https://{host}:{port}", ca=ca),
        user=User(token_file=mount / "token"),
        namespace=namespace or "default",
        source=f"the service account in {mount}",
        in_pod=True,
    )
