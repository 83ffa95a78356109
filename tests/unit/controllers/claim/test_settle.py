"""Every end of the three writes of a claim: one row, one step."""

from __future__ import annotations

import pytest

from sandpool.controllers.claim import settle
from sandpool.controllers.claim.settle import Look, Next, Own, Surface
from sandpool.kube import errors
from sandpool.kube.errors import Cause
from sandpool.model.metadata import Uid
from support.simulated.claim_parts import POOL, a_claim, a_member

MEMBER = a_member()
LEAVING = "2026-01-01T00:00:00Z"
CLAIM_OWNER = {**POOL, "kind": "SandboxClaim", "name": "c", "uid": "claim-uid"}
ME = Uid("claim-uid")
LOST = errors.Invalid("the server rejected our request due to an error in our request")
OUR_BUG = errors.Invalid("bad", causes=(Cause("FieldValueInvalid", "x", "metadata.labels"),))

OPEN = [
    LOST,
    errors.Conflict("x"),
    errors.ServerTimeout("x"),
    errors.InternalError("x"),
    errors.Unavailable("x"),
    errors.Unreachable("x"),
    errors.Unreadable("x"),
    TimeoutError(),
]
SURE = [
    OUR_BUG,
    errors.Refused("x"),
    errors.Untrusted("x"),
    errors.TooManyRequests("x", retry_after=1),
    errors.Forbidden("x"),
    errors.Unauthorized("x"),
    errors.BadRequest("x"),
    errors.RequestTooLarge("x"),
    errors.InsufficientStorage("x"),
    ValueError("x"),
]


@pytest.mark.parametrize("error", OPEN, ids=lambda error: type(error).__name__)
def test_what_is_open_is_looked_at(error: Exception) -> None:
    assert settle.after_transfer(error, "warm") == Look()
    assert settle.after_binding(error) == Look()
    assert settle.after_creation(error) == Look()


@pytest.mark.parametrize("error", SURE, ids=lambda error: type(error).__name__)
def test_what_did_surely_not_happen_surfaces(error: Exception) -> None:
    for step in (settle.after_transfer(error, "warm"), settle.after_binding(error), settle.after_creation(error)):
        assert step == Surface(error)


def test_every_error_of_an_api_server_is_settled() -> None:
    """A new kind of error must be given a row here."""
    known = {type(error) for error in (*OPEN, *SURE)} | {errors.NotFound, errors.AlreadyExists}
    never_said_to_a_write = {errors.Gone, errors.MethodNotAllowed, errors.NotAcceptable, errors.UnsupportedMedia}
    ours = {error for error in errors.ApiError.__subclasses__() if error.__module__ == errors.__name__}
    assert ours <= known | never_said_to_a_write


def test_transfer() -> None:
    taken = a_member(owners=[CLAIM_OWNER])
    assert settle.after_transfer(taken, "warm") == Own(taken)
    assert isinstance(settle.after_transfer(a_member(owners=[CLAIM_OWNER], deletionTimestamp=LEAVING), "warm"), Next)
    assert isinstance(settle.after_transfer(errors.NotFound("x"), "warm"), Next)


def test_transfer_looked_at() -> None:
    def look(found: object) -> object:
        return settle.after_look(found, MEMBER, ME)  # type: ignore[arg-type]

    mine, still_the_pools = a_member(owners=[CLAIM_OWNER]), a_member(annotations={"moved": "on"})
    assert look(mine) == Own(mine), "the answer was lost, the write was not"
    assert look(still_the_pools) == settle.Again(still_the_pools)
    shifted = a_member(owners=[{**POOL, "uid": "w", "controller": None}, POOL])
    assert look(shifted) == settle.Again(shifted)
    for gone in (
        errors.NotFound("x"),
        a_member(uid="another-uid"),
        a_member(deletionTimestamp=LEAVING),
        a_member(owners=[CLAIM_OWNER], deletionTimestamp=LEAVING),
        a_member(owners=[{**CLAIM_OWNER, "uid": "another-claim"}]),
        a_member(owners=[{**POOL, "uid": "the pool made anew"}]),
        a_member(owners=[{**POOL, "controller": None}]),
    ):
        step = look(gone)
        assert isinstance(step, Next), gone
        assert "warm" in step.why
    trouble = errors.Unavailable("x")
    assert look(trouble) == Surface(trouble), "without an answer nothing else is tried"


def test_binding() -> None:
    bound = a_claim(status={"sandbox": {"name": "warm"}})
    assert settle.after_binding(bound) == settle.Bound(bound)
    assert settle.after_binding(errors.NotFound("x")) == settle.ClaimGone()


@pytest.mark.parametrize("had_status", [False, True])
def test_binding_looked_at(had_status: bool) -> None:
    def look(found: object, planned: object = a_claim()) -> object:
        return settle.after_claim_look(found, planned, "warm", had_status=had_status)  # type: ignore[arg-type]

    bound, other = (a_claim(status={"sandbox": {"name": name}}) for name in ("warm", "other"))
    assert look(bound) == settle.Bound(bound)
    assert look(other) == settle.Surplus("other")
    assert look(errors.NotFound("x")) == settle.ClaimGone()
    assert look(a_claim(meta={"uid": "another"}, status={"sandbox": {"name": "warm"}})) == settle.ClaimGone()
    trouble = errors.Unreachable("x")
    assert look(trouble) == Surface(trouble)
    bare = a_claim()
    assert look(bare) == settle.Rebind(bare, has_status=not had_status), "an empty status looks like none"
    lost = a_claim(status={"sandbox": {"name": "lost"}})
    assert look(lost, lost) == settle.Rebind(lost, has_status=True)


def test_creation() -> None:
    made = a_member(owners=[CLAIM_OWNER])
    assert settle.after_creation(made) == Own(made)
    assert settle.after_creation(errors.AlreadyExists("x")) == Look()
    no_namespace = errors.NotFound("no such namespace")
    assert settle.after_creation(no_namespace) == Surface(no_namespace)


def test_creation_looked_at() -> None:
    claim = a_claim()
    made = a_member(owners=[CLAIM_OWNER])
    assert settle.after_creation_look(made, claim) == Own(made)
    assert settle.after_creation_look(errors.NotFound("x"), claim) == settle.Create()
    trouble = errors.InternalError("x")
    assert settle.after_creation_look(trouble, claim) == Surface(trouble)
    for earlier in (
        a_member(owners=[{**CLAIM_OWNER, "uid": "an earlier claim of the name"}]),
        a_member(owners=[{**CLAIM_OWNER, "apiVersion": "extensions.agents.x-k8s.io/v1alpha1", "uid": "earlier"}]),
        a_member(owners=[CLAIM_OWNER], deletionTimestamp=LEAVING),
    ):
        assert settle.after_creation_look(earlier, claim) == settle.Predecessor(earlier)
    for foreign in (
        a_member(owners=[{**CLAIM_OWNER, "name": "another", "uid": "x"}]),
        a_member(owners=[{**CLAIM_OWNER, "apiVersion": "example.com/v1", "uid": "x"}]),
        a_member(),
        a_member(owners=[{**POOL, "controller": None}]),
    ):
        step = settle.after_creation_look(foreign, claim)
        assert isinstance(step, settle.Foreign)
        assert "Sandbox c exists already" in step.message
        assert "delete it, or make a claim of another name" in step.message
