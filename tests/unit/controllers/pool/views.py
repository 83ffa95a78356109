"""Pools, members and views for tests of controllers/pool: small, valid, varied by keyword."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from conformance.bodies import pod_spec, template
from sandpool.controllers.pool.options import Options
from sandpool.controllers.pool.plan import Plan, plan_pool
from sandpool.controllers.pool.roster import Member, Roster
from sandpool.controllers.pool.view import PoolView
from sandpool.model.codec import convert
from sandpool.model.kinds import POOLS, TEMPLATES
from sandpool.model.metadata import Revision, Uid
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.template import SandboxTemplate

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OPTIONS = Options()


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def a_pool(replicas: int | None = 3, strategy: str = "", name: str = "p", **rolling: Any) -> SandboxWarmPool:
    spec: dict[str, Any] = {"sandboxTemplateRef": {"name": "t"}}
    if replicas is not None:
        spec["replicas"] = replicas
    if strategy or rolling:
        spec["updateStrategy"] = {"type": strategy, **({"rollingUpdate": rolling} if rolling else {})}
    meta = {"name": name, "namespace": "default", "uid": "pool-uid", "generation": 4, "resourceVersion": "7"}
    return convert(POOLS, {"metadata": meta, "spec": spec})


def a_template(**spec: Any) -> SandboxTemplate:
    pod = spec.pop("pod", {})
    pod_template = {"spec": pod_spec(**pod), **({"metadata": spec.pop("meta")} if "meta" in spec else {})}
    body = template("t", podTemplate=pod_template, **spec)
    body["metadata"] = {
        "name": "t",
        "namespace": "default",
        "uid": "template-uid",
        "generation": 2,
        "resourceVersion": "3",
    }
    return convert(TEMPLATES, body)


TEMPLATE = a_template()


def a_member(number: int, *, age: float = 60.0, unready_for: float | None = None, **facts: Any) -> Member:
    created = ago(age)
    since = created if unready_for is None else ago(unready_for)
    name = f"p-{number:08d}"
    return Member(Uid(f"u{number}"), name, Revision(number), created=created, since=since, **facts)


def ready(number: int, **facts: Any) -> Member:
    return a_member(number, ready=True, **facts)


def a_roster(members: Iterable[Member] = (), options: Options = OPTIONS) -> Roster:
    roster = Roster(options.readiness_grace, options.longest_grace)
    for member in members:
        roster.put(member)
    return roster


def a_view(members: Iterable[Member] = (), replicas: int | None = 3, strategy: str = "", **facts: Any) -> PoolView:
    rolling = facts.pop("rolling", {})
    options = facts.pop("options", OPTIONS)
    facts.setdefault("template", TEMPLATE)
    return PoolView(a_pool(replicas, strategy, **rolling), roster=a_roster(members, options), **facts)


def planned(view: PoolView, options: Options = OPTIONS) -> tuple[list[str], int]:
    """Who goes, by uid and in order, and how many come."""
    plan = plan_pool(view, options, NOW)
    return names(plan), plan.creates


def names(plan: Plan) -> list[str]:
    return [str(removal.member.uid) for removal in plan.removals]
