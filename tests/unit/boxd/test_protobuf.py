"""The small protobuf codec against the real one, with the stubs that clients have; and against garbage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from k8s_agent_sandbox.commands._process_stubs import process_pb2 as pb

from sandpool.boxd.compat import grpc_service as messages
from sandpool.boxd.processes.process import Exit
from sandpool.wire.codes import Refused
from sandpool.wire.protobuf import ProtobufError

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(st.lists(WORDS, min_size=1, max_size=5), st.dictionaries(WORDS, WORDS, max_size=4), WORDS)
def test_what_is_to_be_run(command: list[str], env: dict[str, str], cwd: str) -> None:
    config = pb.ProcessConfig(command=command, env_vars=env, cwd=cwd)
    spec = messages.execute_request(pb.ExecuteRequest(config=config).SerializeToString())
    assert (spec.argv, spec.env, spec.cwd) == (tuple(command), env, cwd)


@given(st.integers(0, 2**31 - 1), st.binary(max_size=300), st.integers(0, 65535), st.integers(0, 65535))
def test_what_a_process_is_told(process: int, data: bytes, cols: int, rows: int) -> None:
    told = messages.stdin_request(pb.WriteStdinRequest(process_id=process, input=data).SerializeToString())
    assert (told.process, told.input, told.ends) == (str(process), data, False)
    told = messages.resize_request(pb.ResizeTTYRequest(process_id=process, cols=cols, rows=rows).SerializeToString())
    assert told.size is not None
    assert (told.size.cols, told.size.rows) == (cols, rows)


@given(st.integers(0, 255), st.binary(max_size=300), st.binary(max_size=300))
def test_what_is_answered(code: int, out: bytes, err: bytes) -> None:
    done = pb.ExecuteResponse.FromString(messages.execute_response(Exit(code), out, err))
    assert (done.exit_code, done.stdout, done.stderr) == (code, out, err)
    assert pb.StartResponse.FromString(messages.exit_event(Exit(137, 9))).exit.exit_code == -1
    assert pb.StartResponse.FromString(messages.start_event("7")).init.process_id == 7
    assert pb.StartResponse.FromString(messages.output_event(err, error=True)).stderr == err


@given(st.binary(max_size=100))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    for read in (
        lambda d: list(messages.fields(d)),
        messages.execute_request,
        messages.stdin_request,
        messages.signal_request,
    ):
        try:
            read(data)
        except (ProtobufError, Refused):
            pass
