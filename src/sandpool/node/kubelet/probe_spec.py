"""What a container's spec says about looking after it: probes and hooks."""

from __future__ import annotations

from sandpool.model.metadata import Model


class ExecAction(Model, frozen=True):
    command: tuple[str, ...] = ()


class HttpHeader(Model, frozen=True):
    name: str = ""
    value: str = ""


class HttpGetAction(Model, frozen=True):
    port: int | str = 0
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocketAction(Model, frozen=True):
    port: int | str = 0
    host: str = ""


class SleepAction(Model, frozen=True):
    seconds: float = 0


class GrpcAction(Model, frozen=True):
    port: int = 0


Action = ExecAction | HttpGetAction | TcpSocketAction | SleepAction


class Handler(Model, frozen=True):
    """Exactly one of these, by the API server's rules."""

    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    sleep: SleepAction | None = None
    grpc: GrpcAction | None = None

    @property
    def action(self) -> Action | None:
        """None: one that we do not know."""
        return self.exec or self.http_get or self.tcp_socket or self.sleep


class ProbeSpec(Handler, frozen=True):
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class Lifecycle(Model, frozen=True):
    post_start: Handler | None = None
    pre_stop: Handler | None = None
