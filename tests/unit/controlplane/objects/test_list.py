"""GET of collections: selectors, pages of one snapshot, and the rules of resourceVersion."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandpool.controlplane.objects.options import Listed, ListQuery
from sandpool.controlplane.objects.refusals import TokenExpired
from sandpool.controlplane.store.history import HistoryLimits
from sandpool.kube.errors import BadRequest, Gone, Invalid, ServerTimeout
from sandpool.model import kinds
from sandpool.model.metadata import Revision
from support.api.local_objects import Bench, bench, config_map, pod, read


async def five(b: Bench) -> None:
    for index in range(5):
        await b.create(kinds.CONFIG_MAPS, config_map(f"c{index}", labels={"n": str(index % 2)}))


def names(listed: Listed) -> list[str]:
    return [read(record)["metadata"]["name"] for record in listed.records]


async def test_all_and_by_namespace(b: Bench) -> None:
    await five(b)
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "other"}})
    await b.create(kinds.CONFIG_MAPS, config_map("c9"), namespace="other")
    assert b.names_of(kinds.CONFIG_MAPS) == ["c0", "c1", "c2", "c3", "c4"]
    assert b.names_of(kinds.CONFIG_MAPS, "") == ["c0", "c1", "c2", "c3", "c4", "c9"]
    assert b.names_of(kinds.CONFIG_MAPS, "nowhere") == []
    assert b.objects.list(kinds.CONFIG_MAPS, "").revision == b.store.revision


async def test_namespace_is_a_whole_name(b: Bench) -> None:
    """No namespace sees another whose name it begins."""
    await b.create(kinds.NAMESPACES, {"metadata": {"name": "default2"}})
    await b.create(kinds.CONFIG_MAPS, config_map(), namespace="default2")
    assert b.names_of(kinds.CONFIG_MAPS, "default") == []


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("n=0", ["c0", "c2", "c4"]),
        ("n!=0", ["c1", "c3"]),
        ("n in (0, 1),!x", ["c0", "c1", "c2", "c3", "c4"]),
        ("x", []),
    ],
)
async def test_label_selectors(b: Bench, labels: str, found: list[str]) -> None:
    await five(b)
    assert b.names_of(kinds.CONFIG_MAPS, labels=labels) == found


async def test_field_selectors(b: Bench) -> None:
    await b.create(kinds.PODS, pod("a", node="n1"))
    await b.create(kinds.PODS, pod("b", node="n2"))
    await b.create(kinds.PODS, pod("c"))
    await b.patch(kinds.PODS, "a", {"status": {"phase": "Running", "podIP": "10.0.0.1"}}, "status")
    assert b.names_of(kinds.PODS, fields="spec.nodeName=n1") == ["a"]
    assert b.names_of(kinds.PODS, fields="spec.nodeName=") == ["c"]
    assert b.names_of(kinds.PODS, fields="spec.nodeName!=n1,status.phase=Pending") == ["b", "c"]
    assert b.names_of(kinds.PODS, fields="status.podIP=10.0.0.1") == ["a"]
    assert b.names_of(kinds.PODS, fields="metadata.name=b") == ["b"]
    assert b.names_of(kinds.PODS, "", fields="metadata.namespace!=default") == []
    assert b.names_of(kinds.PODS, fields="spec.restartPolicy=Always,spec.hostNetwork=false") == ["a", "b", "c"]


async def test_fields_of_other_kinds(b: Bench) -> None:
    event = {"involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}, "reason": "R", "type": "Normal"}
    await b.create(kinds.EVENTS, {"metadata": {"name": "e"}, **event, "source": {"component": "kubelet"}})
    await b.create(kinds.NODES, {"metadata": {"name": "n"}})
    await b.create(kinds.SECRETS, {"metadata": {"name": "s"}})
    assert b.names_of(kinds.EVENTS, fields="involvedObject.kind=Pod,involvedObject.name=p,reason=R,type=Normal") == [
        "e"
    ]
    assert b.names_of(kinds.EVENTS, fields="source=kubelet") == ["e"]
    assert b.names_of(kinds.EVENTS, fields="reason!=R") == []
    assert b.names_of(kinds.NODES, fields="spec.unschedulable=false") == ["n"]
    assert b.names_of(kinds.NODES, fields="spec.unschedulable=true") == []
    assert b.names_of(kinds.SECRETS, fields="type=Opaque") == ["s"]
    assert b.names_of(kinds.NAMESPACES, fields="status.phase=Active") == ["default"]


async def test_fields_that_cannot_be_selected_by(b: Bench) -> None:
    for resource in (kinds.CLAIMS, kinds.PODS, kinds.EVENTS):
        with pytest.raises(BadRequest, match=r"^field label not supported: spec\.foo$"):
            b.objects.list(resource, "", ListQuery(fields="spec.foo=b"))
    with pytest.raises(BadRequest, match=r"^field label not supported: metadata.namespace$"):
        b.objects.list(kinds.NODES, "", ListQuery(fields="metadata.namespace=a"))
    with pytest.raises(BadRequest) as caught:
        b.objects.list(kinds.CONFIG_MAPS, "", ListQuery(fields="foo=b"))
    assert caught.value.message == '"foo" is not a known field selector: only "metadata.name", "metadata.namespace"'


async def test_unreadable_selectors(b: Bench) -> None:
    with pytest.raises(BadRequest, match=r"unable to parse requirement: found 'b', expected: in, notin"):
        b.objects.list(kinds.PODS, "", ListQuery(labels="a b c"))
    with pytest.raises(BadRequest, match=r"invalid selector: 'metadata.name'; can't understand 'metadata.name'"):
        b.objects.list(kinds.PODS, "", ListQuery(fields="metadata.name"))


async def test_pages_show_one_snapshot(b: Bench) -> None:
    await five(b)
    first = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2))
    assert (names(first), first.remaining) == (["c0", "c1"], 3)
    await b.create(kinds.CONFIG_MAPS, config_map("c1a"))
    await b.delete(kinds.CONFIG_MAPS, "c3")
    await b.patch(kinds.CONFIG_MAPS, "c4", {"data": {"new": "1"}})
    second = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2, after=first.after))
    assert (names(second), second.remaining, second.revision) == (["c2", "c3"], 1, first.revision)
    third = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2, after=second.after))
    assert (names(third), third.after, third.remaining) == (["c4"], "", None)
    assert "new" not in read(third.records[0])["data"]


async def test_pages_with_a_selector(b: Bench) -> None:
    await five(b)
    first = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2, labels="n=0"))
    assert (names(first), first.remaining) == (["c0", "c2"], None)
    second = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2, labels="n=0", after=first.after))
    assert (names(second), second.after) == (["c4"], "")


async def test_many_pages_with_a_rare_match(b: Bench) -> None:
    for index in range(1200):
        await b.objects.create(kinds.CONFIG_MAPS, "default", config_map(f"c{index:04}", labels={"x": str(index % 400)}))
    found: list[str] = []
    after = ""
    while True:
        page = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=1, labels="x=399", after=after))
        found += names(page)
        after = page.after
        if not after:
            break
    assert found == ["c0399", "c0799", "c1199"]


async def test_expired_token_offers_an_inconsistent_one() -> None:
    async with bench(HistoryLimits(changes=8)) as b:
        await five(b)
        old = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2))
        for turn in range(20):
            await b.patch(kinds.CONFIG_MAPS, "c0", {"data": {"turn": str(turn)}})
        with pytest.raises(TokenExpired) as caught:
            b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2, after=old.after))
        assert (caught.value.code, caught.value.word) == (410, "Expired")
        assert caught.value.message.startswith(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list"
        )
        after = caught.value.body()["metadata"]["continue"]
        page = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2, after=after))
        assert (names(page), page.revision) == (["c2", "c3"], b.store.revision)
        with pytest.raises(Gone, match=r"^The resourceVersion for the provided list is too old\.$"):
            b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(revision=old.revision, match=r"Exact"))


async def test_revisions(b: Bench) -> None:
    await five(b)
    early = Revision(b.store.revision - 3)

    def listed(**query: object) -> Listed:
        return b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(**query))  # type: ignore[arg-type]

    assert len(listed(revision=Revision(0)).records) == 5
    assert len(listed(revision=early).records) == 5
    assert len(listed(revision=early, match=r"NotOlderThan").records) == 5
    exact = listed(revision=early, match=r"Exact")
    assert (names(exact), exact.revision) == (["c0", "c1"], early)
    assert names(listed(revision=early, limit=10)) == ["c0", "c1"]
    future = Revision(b.store.revision + 10)
    for match in ("", "Exact", "NotOlderThan"):
        with pytest.raises(ServerTimeout) as caught:
            listed(revision=future, match=match)
        assert caught.value.message == f"Timeout: Too large resource version: {future}, current: {b.store.revision}"
        assert [(c.reason, c.message) for c in caught.value.causes] == [
            ("ResourceVersionTooLarge", "Too large resource version")
        ]


async def test_options_that_contradict_each_other(b: Bench) -> None:
    await five(b)
    token = b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(limit=2)).after

    def refused(error: type[Exception], words: str, **query: object) -> None:
        with pytest.raises(error, match=words):
            b.objects.list(kinds.CONFIG_MAPS, "default", ListQuery(**query))  # type: ignore[arg-type]

    refused(BadRequest, "specifying resource version is not allowed", after=token, revision=Revision(3))
    refused(Invalid, "resourceVersionMatch is forbidden unless resourceVersion is provided", match=r"Exact")
    refused(Invalid, 'Unsupported value: "Foo": supported values', revision=Revision(3), match=r"Foo")
    refused(Invalid, '"exact" is forbidden for resourceVersion "0"', revision=Revision(0), match=r"Exact")
    refused(Invalid, "forbidden when continue is provided", after=token, match=r"NotOlderThan")


@settings(max_examples=50, deadline=None)
@given(st.one_of(st.text(max_size=30), st.binary(max_size=30).map(lambda raw: base64.b64encode(raw).decode())))
async def test_no_token_breaks_it(token: str) -> None:
    async with bench() as b:
        query = ListQuery(limit=2, after=token)
        if not token:
            assert b.objects.list(kinds.CONFIG_MAPS, "default", query).records == ()
            return
        with pytest.raises((BadRequest, Gone, ServerTimeout)):
            b.objects.list(kinds.CONFIG_MAPS, "default", query)
