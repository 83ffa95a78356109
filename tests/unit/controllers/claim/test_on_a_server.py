"""The two patches on a real store: what the pure tests say of documents holds of objects."""

from __future__ import annotations

import asyncio

import pytest

from sandpool.controllers.claim import settle
from sandpool.controllers.claim.binding import binding, bound_status
from sandpool.controllers.claim.blueprint import cold_sandbox
from sandpool.controllers.claim.transfer import transfer
from sandpool.kube.api import Api
from sandpool.kube.errors import ApiError, Invalid
from sandpool.model.claim import SandboxClaim
from sandpool.model.kinds import CLAIMS, SANDBOXES
from sandpool.model.patches import merge_patch
from sandpool.model.sandbox import Sandbox
from support.simulated.claim_parts import a_template, claim_body, condition, member_body
from support.simulated.loop_cluster import START, a_cluster

pytestmark = pytest.mark.looptime


async def create_claim(api: Api, name: str) -> SandboxClaim:
    body = claim_body()
    return await api.create(CLAIMS, {**body, "metadata": {"name": name}}, "default")


async def create_member(api: Api) -> Sandbox:
    made = await api.create(SANDBOXES, member_body(), "default")
    status = {"conditions": [condition()], "podIPs": ["10.0.0.1"], "nodeName": "n"}
    return await api.patch_status(SANDBOXES, made.metadata.name, merge_patch({"status": status}), "default")


async def test_one_of_many_claims_takes_a_member_and_publishes_it() -> None:
    async with a_cluster() as api:
        member = await create_member(api)
        claims = [await create_claim(api, f"c{i}") for i in range(10)]
        tries = (api.patch(SANDBOXES, "warm", transfer(member, claim), "default") for claim in claims)
        results = await asyncio.gather(*tries, return_exceptions=True)
        owns = []
        for claim, result in zip(claims, results, strict=True):
            step = settle.after_transfer(result, "warm")
            if isinstance(step, settle.Look):
                step = settle.after_look(await api.get(SANDBOXES, "warm", "default"), member, claim.metadata.uid)  # type: ignore[assignment]
            if isinstance(step, settle.Own):
                owns.append((claim, step.sandbox))
            else:
                assert isinstance(step, settle.Next)
        ((claim, sandbox),) = owns
        assert sandbox.metadata.generation == member.metadata.generation, "the spec was left alone"
        bound = await api.patch_status(
            CLAIMS, claim.metadata.name, binding(claim, bound_status(claim, sandbox, START)), "default"
        )
        assert bound.status.sandbox is not None
        assert bound.status.sandbox.pod_ips == ("10.0.0.1",)
        assert bound.status.conditions[0].true


async def test_a_second_binding_is_surplus() -> None:
    async with a_cluster() as api:
        claim, member = await create_claim(api, "c"), await create_member(api)
        await api.patch_status(CLAIMS, "c", binding(claim, bound_status(claim, member, START)), "default")
        other = cold_sandbox(claim, a_template())
        with pytest.raises(Invalid) as caught:
            await api.patch_status(CLAIMS, "c", binding(claim, bound_status(claim, other, START)), "default")
        assert settle.after_binding(caught.value) == settle.Look()
        found = await api.get(CLAIMS, "c", "default")
        assert settle.after_claim_look(found, claim, "c", had_status=False) == settle.Surplus("warm")


async def test_an_empty_status_is_bound_in_two_tries() -> None:
    async with a_cluster() as api:
        claim, member = await create_claim(api, "c"), await create_member(api)
        await api.patch_status(CLAIMS, "c", merge_patch({"status": {}}), "default")
        form, step = False, None
        for _ in range(2):
            try:
                outcome: SandboxClaim | ApiError = await api.patch_status(
                    CLAIMS, "c", binding(claim, bound_status(claim, member, START), has_status=form), "default"
                )
            except ApiError as error:
                outcome = error
            step = settle.after_binding(outcome)
            if isinstance(step, settle.Look):
                again = settle.after_claim_look(await api.get(CLAIMS, "c", "default"), claim, "warm", had_status=form)
                assert isinstance(again, settle.Rebind)
                claim, form = again.claim, again.has_status
        assert isinstance(step, settle.Bound)


async def test_a_cold_sandbox_is_accepted_and_found_again() -> None:
    async with a_cluster() as api:
        claim = await create_claim(api, "c")
        made = await api.create(SANDBOXES, cold_sandbox(claim, a_template()), "default")
        assert settle.after_creation(made) == settle.Own(made)
        with pytest.raises(ApiError) as caught:
            await api.create(SANDBOXES, cold_sandbox(claim, a_template()), "default")
        assert settle.after_creation(caught.value) == settle.Look()
        assert settle.after_creation_look(await api.get(SANDBOXES, "c", "default"), claim) == settle.Own(made)
