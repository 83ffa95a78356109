"""The fields of a pod that its streams need: identity, containers and their states. Errors use Kubernetes' messages and codes. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from sandpool.kube.errors import BadRequest
from sandpool.model.metadata import Metadata, Model

DEFAULT_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
_PULL_WORDS: Final = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
_OVER: Final = ("Succeeded", "Failed")


class _Named(Model, frozen=True):
    name: str = ""


class _Spec(Model, frozen=True):
    node_name: str = ""
    init_containers: tuple[_Named, ...] = ()
    containers: tuple[_Named, ...] = ()


class _Waiting(Model, frozen=True):
    reason: str = ""


class _Ran(Model, frozen=True):
    container_id: str = msgspec.field(name="containerID", default="")


class _State(Model, frozen=True):
    waiting: _Waiting | None = None
    running: _Ran | None = None
    terminated: _Ran | None = None


class ContainerStatus(Model, frozen=True):
    name: str = ""
    state: _State = _State()
    last_state: _State = _State()


class _Status(Model, frozen=True):
    phase: str = ""
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class StreamedPod(Model, frozen=True):
    metadata: Metadata = Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def name(self) -> str:
        return self.metadata.name

    def status_of(self, container: str) -> ContainerStatus | None:
        every = (*self.status.container_statuses, *self.status.init_container_statuses)
        return next((status for status in every if status.name == container), None)


_DECODER: Final = msgspec.json.Decoder(StreamedPod)


def view(pod: bytes) -> StreamedPod:
    return _DECODER.decode(pod)


def container_of(pod: StreamedPod, asked: str) -> str:
    """The container of a request: the one it names, else the pod's default container, else its only one."""
    names = [container.name for container in pod.spec.containers]
    init = [container.name for container in pod.spec.init_containers]
    if asked:
        if asked not in names and asked not in init:
            raise BadRequest(f"container {asked} is not valid for pod {pod.name}")
        return asked
    chosen = pod.metadata.annotations.get(DEFAULT_CONTAINER, "")
    if chosen in names:
        return chosen
    if len(names) == 1:
        return names[0]
    message = f"a container name must be specified for pod {pod.name}"
    if names:
        message += f", choose one of: [{' '.join(names)}]"
    if init:
        message += f" or one of the init containers: [{' '.join(init)}]"
    raise BadRequest(message)


def check_assigned(pod: StreamedPod) -> None:
    if not pod.spec.node_name:
        raise BadRequest(f"pod {pod.name} does not have a host assigned")


def check_running(pod: StreamedPod, container: str, what: str) -> None:
    """Checks that a container runs; `what` is the operation that needs it."""
    check_assigned(pod)
    check_alive(pod, what)
    status = pod.status_of(container)
    if status is None or status.state.running is None:
        raise BadRequest(f'cannot {what} container "{container}" in pod "{pod.name}": {_why(status)}')


def check_alive(pod: StreamedPod, what: str) -> None:
    if pod.status.phase in _OVER:
        raise BadRequest(f"cannot {what} a container in a completed pod; current phase is {pod.status.phase}")


def _why(status: ContainerStatus | None) -> str:
    if status is not None and status.state.terminated is not None:
        return "it has terminated; look at its exit code in the pod's status"
    reason = status.state.waiting.reason if status is not None and status.state.waiting is not None else ""
    return f"it is waiting to start: {reason or 'ContainerCreating'}"


def check_logged(pod: StreamedPod, container: str, *, previous: bool) -> None:
    """Checks that the container has run, so that there is a log."""
    check_assigned(pod)
    what = f'container "{container}" in pod "{pod.name}"'
    status = pod.status_of(container)
    if status is None:
        raise BadRequest(f"{what} is waiting to start: ContainerCreating")
    ended = status.last_state.terminated is not None
    if previous:
        if not ended:
            raise BadRequest(f"previous terminated {what} not found")
        return
    state = status.state
    if state.running is not None or state.terminated is not None or ended:
        return
    if state.waiting is None:
        raise BadRequest(f"{what} is waiting to start - no logs yet")
    reason = state.waiting.reason or "ContainerCreating"
    raise BadRequest(f"{what} is waiting to start: {_PULL_WORDS.get(reason, reason)}")
