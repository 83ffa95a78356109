#!/usr/bin/env bash
# A pool of warm sandboxes, a claim that takes one, and the refill. KUBECONFIG must name a cluster (`sandpool up`).
set -euo pipefail
cd "$(dirname "$0")"
show() { printf '$ %s\n' "$*"; "$@"; }
ready() { kubectl get sandboxes --no-headers | grep -c ' True '; }

show kubectl apply -f template.yaml -f pool.yaml
show kubectl wait --for=condition=Ready sandboxwarmpool/python --timeout=60s
show kubectl get sandboxwarmpool python

show kubectl apply -f claim.yaml
show kubectl wait --for=condition=Ready sandboxclaim/mine --timeout=60s
show kubectl get sandboxclaim mine
box=$(kubectl get sandboxclaim mine -o 'jsonpath={.status.sandbox.name}')
show kubectl get sandbox "$box"

echo "# The pool creates a replacement for the member that was claimed"
for _ in {1..200}; do if [ "$(ready)" = 4 ]; then break; fi; sleep 0.1; done
show kubectl get sandboxes

echo "# Releasing it: the sandbox and its pod are deleted with the claim"
show kubectl delete sandboxclaim mine
show kubectl wait --for=delete "sandbox/$box" "pod/$box" --timeout=60s
show kubectl get sandboxes
