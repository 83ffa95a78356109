from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from sandpool.controlplane.apiserver.tables.table import columns_of, table_of
from sandpool.kube.errors import BadRequest
from sandpool.model import kinds
from sandpool.model.jsonpath import JsonPathError, parse_path
from sandpool.model.resource import Resource
from sandpool.model.times import human, since

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 86400 * 365


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (9 * MINUTE + 59, "9m59s"),
        (10 * MINUTE + 1, "10m"), (179 * MINUTE, "179m"), (3 * HOUR, "3h"), (7 * HOUR + MINUTE, "7h1m"), (8 * HOUR + MINUTE, "8h"),
        (47 * HOUR, "47h"), (48 * HOUR, "2d"), (2 * DAY + HOUR, "2d1h"), (8 * DAY + HOUR, "8d"), (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"), (2 * YEAR + DAY, "2y1d"), (8 * YEAR + DAY, "8y"),
    ],
)  # fmt: skip
def test_ages(seconds: int, shown: str) -> None:
    assert human(seconds) == shown


def test_age_of_a_timestamp() -> None:
    assert since("2026-01-02T03:03:05Z", NOW) == "60s"
    assert since("2026-01-02T03:03:05.5Z", NOW) == "59s"
    assert [since(odd, NOW) for odd in (None, "", "yesterday", 7)] == ["<unknown>"] * 4


DOCUMENT: dict[str, Any] = {
    "status": {
        "conditions": [{"type": "A", "status": "False"}, {"type": "Ready", "status": "True"}],
        "ips": ["1", "2"],
        "n": 3,
    },
    "metadata": {"annotations": {"a.b/c": "x"}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".status.n", [3]),
        ("{.status.n}", [3]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type == "Ready")].status', ["True"]),
        (".status.conditions[?(@.type!='Ready')].type", ["A"]),
        (".status.conditions[*].type", ["A", "Ready"]),
        (".status.ips[0]", ["1"]),
        (".status.ips[-1]", ["2"]),
        (".status.ips[7]", []),
        (".metadata.annotations.a\\.b/c", ["x"]),
        (".metadata.annotations['a.b/c']", ["x"]),
        (".nothing.here", []),
        (".status.n.deeper", []),
    ],
)
def test_paths(path: str, found: list[Any]) -> None:
    assert parse_path(path)(DOCUMENT, DOCUMENT) == found


def test_a_path_that_is_none() -> None:
    with pytest.raises(JsonPathError, match="bracket is not closed"):
        parse_path(".status[")


def test_every_path_of_our_kinds_compiles_and_every_kind_has_columns() -> None:
    for resource in kinds.ALL:
        columns = columns_of(resource)
        assert any(column.format == "name" for column in columns), resource.plural


def cells(resource: Resource[Any], item: dict[str, Any]) -> dict[str, Any]:
    body = {"metadata": {"name": "a", "creationTimestamp": "2026-01-02T03:03:05Z"}} | item
    row = msgspec.json.decode(table_of(resource, {}).row(msgspec.json.encode(body), NOW))
    return dict(zip([column.name for column in columns_of(resource)], row["cells"], strict=True))


def test_our_kinds() -> None:
    ready = [{"type": "Ready", "status": "True", "reason": "SandboxReady"}]
    shown = cells(kinds.SANDBOXES, {"status": {"conditions": ready, "podIPs": ["10.0.0.1"]}})
    assert shown == {
        "Name": "a", "Ready": "True", "Reason": "SandboxReady", "Age": "60s", "Mode": None, "IP": "10.0.0.1", "Node": None,
    }  # fmt: skip
    assert cells(kinds.POOLS, {"spec": {"replicas": 3}})["Desired"] == 3


def container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "ready": False, "restartCount": 0, "state": {}} | more


def pod(*statuses: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = {"phase": "Running", "containerStatuses": list(statuses)} | more.pop("status", {})
    return {"spec": {"containers": [{"name": "c"}] * max(1, len(statuses))}, "status": status} | more


RUNNING = container(ready=True, state={"running": {}})


@pytest.mark.parametrize(
    ("item", "ready", "status"),
    [
        (pod(RUNNING), "1/1", "Running"),
        (pod(status={"phase": "Pending"}), "0/1", "Pending"),
        (pod(container(state={"waiting": {"reason": "ContainerCreating"}})), "0/1", "ContainerCreating"),
        (pod(container(state={"terminated": {"exitCode": 1, "reason": "Error"}})), "0/1", "Error"),
        (pod(container(state={"terminated": {"exitCode": 3}})), "0/1", "ExitCode:3"),
        (pod(container(state={"terminated": {"exitCode": 0, "signal": 9}})), "0/1", "Signal:9"),
        (pod(RUNNING, container(state={"terminated": {"exitCode": 0, "reason": "Completed"}})), "1/2", "NotReady"),
        (pod(status={"phase": "Failed", "reason": "Evicted"}), "0/1", "Evicted"),
        (pod(RUNNING, metadata={"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}), "1/1", "Terminating"),
        (
            pod(
                spec={"containers": [{}], "initContainers": [{}, {}]},
                status={"phase": "Pending", "initContainerStatuses": [container(state={"terminated": {"exitCode": 0}}), container(state={"running": {}})]},
            ),
            "0/1",
            "Init:1/2",
        ),
        (
            pod(
                spec={"containers": [{}], "initContainers": [{}]},
                status={"phase": "Pending", "initContainerStatuses": [container(state={"terminated": {"exitCode": 1}})]},
            ),
            "0/1",
            "Init:ExitCode:1",
        ),
    ],
)  # fmt: skip
def test_pods(item: dict[str, Any], ready: str, status: str) -> None:
    shown = cells(kinds.PODS, item)
    assert (shown["Ready"], shown["Status"]) == (ready, status)


def test_restarts_say_when() -> None:
    ended = (NOW - timedelta(minutes=5)).isoformat()
    item = pod(container(restartCount=2, lastState={"terminated": {"finishedAt": ended}}), container(restartCount=1))
    assert cells(kinds.PODS, item)["Restarts"] == "3 (5m ago)"


def test_other_kinds() -> None:
    service = {
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "10.0.0.1",
            "ports": [{"port": 80, "nodePort": 3}],
            "selector": {"a": "b"},
        }
    }
    assert cells(kinds.SERVICES, service) == {
        "Name": "a", "Type": "ClusterIP", "Cluster-IP": "10.0.0.1", "External-IP": "<none>", "Port(s)": "80:3/TCP",
        "Age": "60s", "Selector": "a=b",
    }  # fmt: skip
    node = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}, "spec": {"unschedulable": True}}
    assert cells(kinds.NODES, node)["Status"] == "NotReady,SchedulingDisabled"
    event = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "R",
        "type": "Normal",
        "message": "m\n",
        "lastTimestamp": "2026-01-02T03:04:00Z",
    }
    shown = cells(kinds.EVENTS, event)
    assert (shown["Last Seen"], shown["Object"], shown["Message"], shown["Count"]) == ("5s", "pod/p", "m", "1")
    assert cells(kinds.CONFIG_MAPS, {"data": {"a": ""}, "binaryData": {"b": ""}})["Data"] == 2
    assert cells(kinds.SECRETS, {"type": "Opaque"}) == {"Name": "a", "Type": "Opaque", "Data": 0, "Age": "60s"}
    policy = {
        "spec": {
            "podSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
            }
        }
    }
    assert cells(kinds.NETWORK_POLICIES, policy)["Pod-Selector"] == "a=b,k in (x,y)"
    claim = {"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}}
    assert cells(kinds.PERSISTENT_VOLUME_CLAIMS, claim)["Access Modes"] == "RWO"


def test_how_much_of_the_object_travels() -> None:
    body = msgspec.json.encode({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})

    def shown(asked: str) -> Any:
        return msgspec.json.decode(table_of(kinds.CONFIG_MAPS, {"includeObject": asked}).row(body, NOW))["object"]

    assert shown("None") is None
    assert shown("Object")["data"] == {"k": "v"}
    assert shown("") == shown("Metadata") == {
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"},
    }  # fmt: skip
    with pytest.raises(BadRequest, match="includeObject: Invalid value"):
        shown("Everything")
