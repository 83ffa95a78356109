"""One claim, one trace: whatever the controllers do for it is found under the same id."""

from __future__ import annotations

from sandpool.app.controllers import Observability
from sandpool.model import labels
from sandpool.model.kinds import CLAIMS
from sandpool.telemetry.trace import Context, of_annotation, of_uid
from support.api.span_recorder import SpanRecorder
from support.clocks.virtual_loop import run_virtually
from support.simulated.control_plane import a_control_plane

CONTEXT = '{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}'


def spans_of_a_claim(annotations: dict[str, str]) -> tuple[str, list[tuple[str, Context | None]]]:
    recorder, uids = SpanRecorder(), list[str]()

    async def main() -> None:
        async with a_control_plane(observability=Observability(tracer=recorder)) as plane:
            await plane.template()
            await plane.pool(1)
            await plane.filled(1)
            recorder.spans.clear()
            body = {"metadata": {"name": "c", "annotations": annotations}, "spec": {"warmPoolRef": {"name": "python"}}}
            uids.append((await plane.user.create(CLAIMS, body, "default")).metadata.uid)
            await plane.served(["c"])
            await plane.filled(1)

    run_virtually(main())
    kinds = ("ReconcileSandboxClaim", "ReconcileSandbox")
    writes = {span.name for span in recorder.spans if span.inside == "ReconcileSandboxClaim"}
    assert {"patch sandboxes", "patch status of sandboxclaims"} <= writes
    return uids[0], [(span.name, span.parent) for span in recorder.spans if span.name in kinds]


def test_the_context_of_the_client_is_continued() -> None:
    _, spans = spans_of_a_claim({labels.TRACE_CONTEXT: CONTEXT})
    assert {name for name, parent in spans if parent == of_annotation(CONTEXT)} == {
        "ReconcileSandboxClaim",
        "ReconcileSandbox",
    }


def test_without_one_the_claim_has_a_trace_of_its_own() -> None:
    uid, spans = spans_of_a_claim({})
    assert {name for name, parent in spans if parent == of_uid(uid)} == {"ReconcileSandboxClaim", "ReconcileSandbox"}
