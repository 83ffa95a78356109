from __future__ import annotations

from typing import Any

import pytest

from sandpool.controllers.sandbox.observe import Observer
from sandpool.controllers.sandbox.view import Holding, adoptable, holding
from sandpool.loop.cache import Cache
from sandpool.model.kinds import PODS
from sandpool.model.labels import ADOPTABLE, POD_NAME
from unit.controllers.sandbox.views import (
    CLAIM,
    FOREIGN,
    OURS,
    POOL,
    PREDECESSOR,
    TRACKING,
    caches_of,
    owner_object,
    pod,
    sandbox,
    service,
    templates,
    view_of,
    volume_claim,
)


@pytest.mark.parametrize("make", [pod, service, volume_claim])
@pytest.mark.parametrize(
    ("owner", "whose"),
    [
        (None, Holding.NOBODY),
        ({**OURS, "controller": False}, Holding.NOBODY),
        (OURS, Holding.OURS),
        ({**OURS, "apiVersion": "agents.x-k8s.io/v1alpha1"}, Holding.OURS),
        (PREDECESSOR, Holding.PREDECESSOR),
        (FOREIGN, Holding.OTHER),
    ],
)
def test_whose_an_object_is(make: Any, owner: Any, whose: Holding) -> None:
    assert holding(make(owner=owner), sandbox()) is whose


@pytest.mark.parametrize(
    ("labels", "may"),
    [({}, False), ({ADOPTABLE: "false"}, False), ({ADOPTABLE: "true"}, True), (TRACKING, True)],
)
def test_what_may_be_taken(labels: dict[str, str], may: bool) -> None:
    assert adoptable(pod(owner=None, labels=labels), sandbox()) is may


def test_everything_is_read_at_once() -> None:
    box = sandbox(spec=templates("data", "logs"), annotations={POD_NAME: "other"})
    own, other, claim = pod(), pod("other", owner=FOREIGN), volume_claim("logs-box")
    view = view_of(box, own, other, service(), claim)
    assert (view.owned, view.named, view.tracked) == ((own,), own, other)
    assert view.service is not None
    assert view.claims == (None, claim)
    assert view.pod == own


def test_objects_of_other_namespaces_are_not_seen() -> None:
    view = view_of(sandbox(), pod(namespace="other", owner=FOREIGN), service(namespace="other"))
    assert (view.named, view.service) == (None, None)


@pytest.mark.parametrize("owner", [POOL, CLAIM])
def test_an_owner_is_alive_under_its_uid_only(owner: dict[str, Any]) -> None:
    box = sandbox(owner=owner)
    assert view_of(box, owner_object(owner)[1]).owner_alive
    assert not view_of(box).owner_alive
    assert not view_of(box, owner_object({**owner, "uid": "another"})[1]).owner_alive
    assert not view_of(sandbox(owner=FOREIGN)).owner_alive


def test_what_we_asked_to_leave_is_leaving() -> None:
    box, own = sandbox(), pod()
    caches = caches_of(box, own)
    caches.pods.mark_deleting(own.metadata.key, own.metadata.uid)
    view = Observer(caches).view(box.metadata.key)
    assert view is not None
    assert view.departing(own)
    assert view.staying == ()


def test_what_the_server_showed_counts_where_the_cache_lacks_it() -> None:
    box, own = sandbox(), pod()
    observer = Observer(caches_of(box))
    view = observer.view(box.metadata.key, [(PODS, own)])
    assert view is not None
    assert (view.named, view.owned) == (own, (own,))
    assert isinstance(observer.caches.pods, Cache)
    assert len(observer.caches.pods) == 0


def test_a_sandbox_that_is_gone_has_no_view() -> None:
    assert Observer(caches_of()).view(sandbox().metadata.key) is None
