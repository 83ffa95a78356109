#!/usr/bin/env bash
# A template changes: unclaimed members are replaced a few at a time, a claimed sandbox is left alone.
# KUBECONFIG must name a cluster (`sandpool up`).
set -euo pipefail
cd "$(dirname "$0")"
show() { printf '$ %s\n' "$*"; "$@"; }
counts='custom-columns=REPLICAS:.status.replicas,READY:.status.readyReplicas,UPDATED:.status.updatedReplicas,UPDATED-READY:.status.updatedReadyReplicas'
release='.spec.podTemplate.spec.containers[0].env[0].value'
columns="custom-columns=NAME:.metadata.name,OWNER:.metadata.ownerReferences[0].kind,RELEASE:$release"
all_have() {  # waits until the pool has four members, all of this release
  for _ in {1..200}; do
    found=$(kubectl get sandboxes -l "$members" -o "jsonpath={.items[*]$release}")
    if [ "$found" = "$1 $1 $1 $1" ]; then return; fi
    sleep 0.1
  done
  echo "the members are still of release $found" >&2
  return 1
}

show kubectl apply -f template.yaml -f pool.yaml
show kubectl wait --for=condition=Ready sandboxwarmpool/rolling --timeout=60s
members=$(kubectl get sandboxwarmpool rolling -o 'jsonpath={.status.selector}')
show kubectl apply -f claim.yaml
show kubectl wait --for=condition=Ready sandboxclaim/at-work --timeout=60s
taken=$(kubectl get sandboxclaim at-work -o 'jsonpath={.status.sandbox.name}')
all_have 1
show kubectl get sandboxes -l "$members" -o "$columns"

echo "# The new release rolls out to the pool; the counts show its progress"
seen=$(mktemp)
kubectl get sandboxwarmpool rolling --watch -o "$counts" >"$seen" &
watch=$!
trap 'kill $watch 2>/dev/null || true; rm -f "$seen"' EXIT
show kubectl patch sandboxtemplate rolling --type=json \
  -p '[{"op": "replace", "path": "/spec/podTemplate/spec/containers/0/env/0/value", "value": "2"}]'
all_have 2
kubectl wait '--for=jsonpath={.status.updatedReadyReplicas}=4' sandboxwarmpool/rolling --timeout=60s
cat "$seen"

echo "# Members have the new release; the claimed sandbox keeps the one that it was created with"
show kubectl get sandboxes -l "$members" -o "$columns"
show kubectl get sandbox "$taken" -o "$columns"
show kubectl delete sandboxclaim at-work
