"""Which members are stale, how often that is worked out, and that nothing is remembered for ever."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from conformance.bodies import metadata, pod_spec
from conformance.bodies import pool as pool_body
from conformance.bodies import sandbox as sandbox_body
from conformance.bodies import template as template_body
from sandpool.controllers.assigner import staleness as module
from sandpool.controllers.assigner.staleness import Staleness
from sandpool.kube.api import Event, EventType
from sandpool.loop.cache import Cache
from sandpool.model import labels
from sandpool.model.blueprint import blueprint_hash, secure_pod_spec
from sandpool.model.codec import convert
from sandpool.model.container_defaults import NONE, STANDARD, ContainerDefaults, amounts
from sandpool.model.kinds import POOLS, SANDBOXES, TEMPLATES
from sandpool.model.metadata import Key, Revision, Uid
from sandpool.model.names import name_hash
from sandpool.model.pool import SandboxWarmPool
from sandpool.model.sandbox import Sandbox
from sandpool.model.template import SandboxTemplate

IMAGE: dict[str, Any] = {"podTemplate": {"spec": pod_spec(containers=[{"name": "main", "image": "other"}])}}
LABELLED: dict[str, Any] = {"podTemplate": {"spec": pod_spec(), "metadata": {"labels": {"app": "x"}}}}


def a_template(name: str = "t", *, generation: int = 1, meta: dict[str, Any] | None = None, **spec: Any) -> Any:
    body = template_body(name, **spec)
    body["metadata"] |= {"namespace": "a", "uid": f"template-{name}", "generation": generation, **(meta or {})}
    return convert(TEMPLATES, body)


def a_pool(*, uid: str = "pool-uid", template: str = "t") -> SandboxWarmPool:
    body = pool_body("p", sandboxTemplateRef={"name": template})
    body["metadata"] |= {"namespace": "a", "uid": uid}
    return convert(POOLS, body)


def a_member(
    of: SandboxTemplate | None = None,
    *,
    name: str = "warm",
    owner: str = "pool-uid",
    defaults: ContainerDefaults = NONE,
    **meta: Any,
) -> Sandbox:
    made_from = of or a_template()
    marks = {
        labels.WARM_POOL: name_hash("p"),
        labels.TEMPLATE_REF_HASH: name_hash(made_from.metadata.name),
        labels.TEMPLATE_HASH: blueprint_hash(made_from.spec),
    }
    reference = {
        "apiVersion": "extensions.agents.x-k8s.io/v1beta1", "kind": "SandboxWarmPool", "name": "p", "uid": owner,
        "controller": True,
    }  # fmt: skip
    head = {"namespace": "a", "uid": f"uid-{name}", "labels": marks, "ownerReferences": [reference], **meta}
    spec = {"podTemplate": {"spec": secure_pod_spec(made_from.spec, defaults)}}
    return convert(SANDBOXES, sandbox_body(spec=spec, metadata=metadata(name, **head)))


def at(obj: Any, revision: Revision) -> Any:
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=str(revision)))


class World:
    """The caches that staleness is read from; each change is a revision."""

    def __init__(self, defaults: ContainerDefaults = NONE) -> None:
        self.pools: Cache[SandboxWarmPool] = Cache(POOLS)
        self.templates: Cache[SandboxTemplate] = Cache(TEMPLATES)
        self.staleness = Staleness(self.pools, self.templates, defaults)
        self._revision = 0

    def show(self, *objects: Any) -> None:
        for obj in objects:
            cache: Cache[Any] = self.pools if isinstance(obj, SandboxWarmPool) else self.templates
            self._revision += 1
            revision = Revision(self._revision)
            cache.apply(Event(EventType.MODIFIED, at(obj, revision), revision))

    def lose(self, obj: Any) -> None:
        cache: Cache[Any] = self.pools if isinstance(obj, SandboxWarmPool) else self.templates
        self._revision += 1
        cache.apply(Event(EventType.DELETED, at(obj, Revision(self._revision)), Revision(self._revision)))


@pytest.fixture
def world() -> World:
    made = World()
    made.show(a_template(), a_pool())
    return made


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was really compared or hashed, in order."""
    done: list[str] = []
    compare, digest = module.stale, module.blueprint_hash  # type: ignore[attr-defined]

    def comparing(*args: Any) -> bool:
        done.append("compared")
        return compare(*args)

    def hashing(*args: Any) -> str:
        done.append("hashed")
        return digest(*args)

    monkeypatch.setattr(module, "stale", comparing)
    monkeypatch.setattr(module, "blueprint_hash", hashing)
    return done  # type: ignore[return-value]


def test_a_member_is_judged_once(world: World, worked_out: list[str]) -> None:
    for _ in range(5):
        assert world.staleness.stale(a_member()) is False
    assert worked_out == ["hashed", "compared"]
    again = a_member(resourceVersion="99", annotations={"x": "y"})
    assert world.staleness.stale(again) is False
    assert worked_out == ["hashed", "compared"], "a status or an annotation says nothing new"


def test_members_that_are_alike_share_one_judgement(world: World) -> None:
    for number in range(3):
        assert world.staleness.stale(a_member(uid=f"m{number}")) is False
    assert world.staleness.remembered[1] == 3
    assert len({id(judged) for judged in world.staleness.judged.values()}) == 1


def test_defaults_are_part_of_what_a_template_makes() -> None:
    """The hash on these members is that of a template without defaults, so it settles nothing."""
    world = World(STANDARD)
    world.show(a_template(), a_pool())
    spec = a_template().spec
    assert world.staleness.blueprint(a_template()) == blueprint_hash(spec, STANDARD) != blueprint_hash(spec)
    others = ContainerDefaults(amounts("memory=1Gi"))
    assert not world.staleness.stale(a_member(name="ours", defaults=STANDARD))
    assert not world.staleness.stale(a_member(name="earlier"))
    assert world.staleness.stale(a_member(name="others", defaults=others))


def test_a_new_generation_of_the_template_is_judged_anew(world: World, worked_out: list[str]) -> None:
    assert world.staleness.stale(a_member()) is False
    world.show(a_template(generation=2, **IMAGE))
    assert world.staleness.stale(a_member()) is True
    assert world.staleness.stale(a_member(a_template(**IMAGE), name="new")) is False
    assert worked_out == ["hashed", "compared", "hashed", "compared", "compared"]


def test_labels_of_the_template_itself_mean_nothing(world: World, worked_out: list[str]) -> None:
    assert world.staleness.stale(a_member()) is False
    world.show(a_template(meta={"labels": {"team": "x"}, "annotations": {"note": "y"}}))
    assert world.staleness.stale(a_member()) is False
    assert worked_out == ["hashed", "compared"]


def test_labels_for_the_pod_make_nobody_stale(world: World) -> None:
    assert world.staleness.stale(a_member()) is False
    world.show(a_template(generation=2, **LABELLED))
    assert world.staleness.stale(a_member()) is False


def test_a_switch_to_another_template_is_seen(world: World) -> None:
    assert world.staleness.stale(a_member()) is False
    world.show(a_template("u"))
    world.show(a_pool(template="u"))
    assert world.staleness.stale(a_member()) is True, "even if the other one makes the very same"
    world.show(a_pool())
    assert world.staleness.stale(a_member()) is False


def test_a_template_made_anew_under_its_name_is_another(world: World) -> None:
    assert world.staleness.stale(a_member()) is False
    world.lose(a_template())
    world.show(a_template(meta={"uid": "second"}, **IMAGE))
    assert world.staleness.stale(a_member()) is True, "though its generation is the same"


def test_members_of_an_earlier_pool_of_the_name_are_nobodys(world: World) -> None:
    stale = a_member(a_template(**IMAGE))
    assert world.staleness.stale(stale) is True
    world.lose(a_pool())
    world.show(a_pool(uid="second"))
    assert world.staleness.stale(stale) is False
    assert world.staleness.stale(a_member(a_template(**IMAGE), owner="second")) is True


def test_an_edit_of_the_member_itself_is_seen(world: World) -> None:
    odd = {"podTemplate": {"spec": pod_spec(containers=[{"name": "main", "image": "mine"}])}}
    member = a_member()
    edited = convert(SANDBOXES, {**sandbox_body(spec=odd), "metadata": {
        **msgspec.to_builtins(member.metadata), "generation": 2, "labels": {**member.metadata.labels, labels.TEMPLATE_HASH: "x"},
    }})  # fmt: skip
    assert world.staleness.stale(member) is False
    assert world.staleness.stale(edited) is True


def test_where_nobody_can_say_it_is_not_stale(world: World) -> None:
    stale = a_member(a_template(**IMAGE))
    free = convert(SANDBOXES, sandbox_body(metadata=metadata("free", namespace="a", uid="f")))
    assert world.staleness.stale(free) is False
    world.show(a_template(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    assert world.staleness.template_of(a_pool()) is None
    assert world.staleness.stale(stale) is False
    world.lose(a_template())
    assert world.staleness.stale(stale) is False
    world.lose(a_pool())
    assert world.staleness.stale(stale) is False


def test_the_answer_survives_a_template_that_comes_back(world: World) -> None:
    stale = a_member(a_template(**IMAGE))
    assert world.staleness.stale(stale) is True
    world.lose(a_template())
    world.show(a_template(meta={"uid": "second"}))
    assert world.staleness.stale(stale) is True


def test_nothing_is_remembered_of_what_is_gone(world: World) -> None:
    for number in range(50):
        template = a_template(f"t{number}")
        world.show(template)
        known = world.templates.get(template.metadata.key)
        assert known is not None
        world.staleness.blueprint(known)
        assert world.staleness.remembered[0] > 0
        world.staleness.stale(a_member(name=f"m{number}"))
        world.staleness.forget(Uid(f"uid-m{number}"))
        world.lose(template)
    assert world.staleness.remembered == (1, 0), "the one template that is still there"
    world.staleness.forget(Uid("never seen"))


def test_a_template_that_is_asked_about_after_its_end_is_not_kept(world: World) -> None:
    old = world.templates.get(Key("a", "t"))
    assert old is not None
    digest = world.staleness.blueprint(old)
    world.lose(old)
    assert world.staleness.blueprint(old) == digest
    assert world.staleness.remembered == (0, 0)


def test_what_was_no_member_was_not_remembered(world: World) -> None:
    world.staleness.stale(a_member(owner="somebody"))
    world.lose(a_pool())
    world.staleness.stale(a_member())
    assert world.staleness.remembered == (0, 0)
    assert world.pools.get(Key("a", "p")) is None
