"""kubectl as an operator calls it on a whole cluster."""

from __future__ import annotations

from support.kube.kubectl import Kubectl, kubectl_path


class Anywhere(Kubectl):
    """As an operator calls it: each object says itself where it belongs."""

    def command(self, *arguments: str) -> list[str]:
        return [kubectl_path(), f"--kubeconfig={self.kubeconfig}", *arguments]
