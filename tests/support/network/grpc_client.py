"""A client of process.v1.ProcessService made of the published stubs, as a program: a gRPC library leaves threads behind.

Reads a port and a token from its arguments, runs one scenario by name, and prints what it found as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import grpc
from k8s_agent_sandbox.commands._process_stubs import process_pb2 as pb
from k8s_agent_sandbox.commands._process_stubs import process_pb2_grpc


def execute(stub: Any) -> Any:
    config = pb.ProcessConfig(command=["sh", "-c", "echo $A; echo err >&2; exit 3"], env_vars={"A": "b c"})
    done = stub.Execute(pb.ExecuteRequest(config=config))
    big = stub.Execute(pb.ExecuteRequest(config=pb.ProcessConfig(command=["head", "-c", "3000000", "/dev/zero"])))
    killed = stub.Execute(pb.ExecuteRequest(config=pb.ProcessConfig(command=["sh", "-c", "kill -9 $$"])))
    return [done.exit_code, done.stdout.decode(), done.stderr.decode(), len(big.stdout), killed.exit_code]


def start(stub: Any) -> Any:
    events = stub.Start(pb.StartRequest(config=pb.ProcessConfig(command=["sh", "-c", "read a; echo got $a; exit 4"])))
    first = next(events)
    id = first.init.process_id
    stub.WriteStdin(pb.WriteStdinRequest(process_id=id, input=b"it\n"))
    rest = list(events)
    out = b"".join(event.stdout for event in rest).decode()
    return [first.WhichOneof("event"), id > 0, out, rest[-1].exit.exit_code]


def terminal(stub: Any) -> Any:
    events = stub.Start(
        pb.StartRequest(config=pb.ProcessConfig(command=["sh"], env_vars={"PS1": "% "}), pty=pb.PTY(cols=91, rows=33))
    )
    id = next(events).init.process_id
    said = b""

    def until(words: bytes) -> None:
        nonlocal said
        while words not in said:
            said += next(events).stdout

    stub.WriteStdin(pb.WriteStdinRequest(process_id=id, input=b"stty size\n"))
    until(b"33 91\r\n")
    stub.ResizeTTY(pb.ResizeTTYRequest(process_id=id, cols=100, rows=40))
    stub.WriteStdin(pb.WriteStdinRequest(process_id=id, input=b"stty size\n"))
    until(b"40 100\r\n")
    stub.SendSignal(pb.SendSignalRequest(process_id=id, signal=pb.SIGNAL_SIGKILL))
    *_, last = events
    return last.exit.exit_code


def refusals(stub: Any) -> Any:
    def code(call: Any, request: Any) -> str:
        try:
            call(request)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    config = pb.ProcessConfig
    return [
        code(stub.Execute, pb.ExecuteRequest()),
        code(stub.Execute, pb.ExecuteRequest(config=config(command=["no-such-program"]))),
        code(stub.Execute, pb.ExecuteRequest(config=config(command=["/etc/passwd"]))),
        code(stub.Execute, pb.ExecuteRequest(config=config(command=["true"], cwd="../.."))),
        code(stub.WriteStdin, pb.WriteStdinRequest(process_id=999, input=b"x")),
        code(stub.SendSignal, pb.SendSignalRequest(process_id=999, signal=15)),
        code(stub.ResizeTTY, pb.ResizeTTYRequest(process_id=999, cols=1, rows=1)),
    ]


def main() -> None:
    scenario, port, token = sys.argv[1:]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        intercepted = grpc.intercept_channel(channel, _Token(token))
        print(json.dumps(globals()[scenario](process_pb2_grpc.ProcessServiceStub(intercepted))))


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def _with(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), ("authorization", f"Bearer {self._token}")])

    def intercept_unary_unary(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(self._with(details), request)

    def intercept_unary_stream(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(self._with(details), request)


if __name__ == "__main__":
    main()
