#!/usr/bin/env bash
# Shows the objects and their lifecycle, command by command, in a temporary directory. With kubectl on the PATH, it shows more.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
here=$(mktemp -d)
export SANDPOOL_DATA_DIR="$here/data"
trap 'sandpool down >/dev/null 2>&1 || true; rm -rf "$here"' EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }
kubectl=$(command -v kubectl || true)

say "A cluster on this machine, from one command"
show sandpool up --detach --port 0 --no-pool
export KUBECONFIG="$SANDPOOL_DATA_DIR/kubeconfig"

say "A pool of warm sandboxes, and a claim that takes one"
show python examples/01-pool-and-claim/claim.py
if [ -n "$kubectl" ]; then
  show kubectl wait '--for=jsonpath={.status.readyReplicas}=3' sandboxwarmpool/python --timeout=60s
  show kubectl get sandboxwarmpools,sandboxclaims,sandboxes,pods
  say "Code runs in it, and cannot see this machine"
  box=$(kubectl get sandboxclaim mine -o 'jsonpath={.status.sandbox.name}')
  show kubectl exec "$box" -- python3 -c 'import os; print(6 * 7, "as process", os.getpid(), "of", sum(name.isdigit() for name in os.listdir("/proc")))'
  say "Invalid input gets a precise error"
  printf '$ kubectl patch sandboxwarmpool python …\n'
  kubectl patch sandboxwarmpool python --type=merge -p '{"spec":{"replicas":"many"}}' || true
fi
show sandpool status

say "It survives kill -9: the claim keeps its sandbox, the pool stays full"
pid=$(sandpool status -o json | python -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
show kill -9 "$pid"
for _ in {1..50}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done # a busy kernel takes a moment to end it
show sandpool up --detach --port 0 --no-pool
show python examples/01-pool-and-claim/claim.py
if [ -n "$kubectl" ]; then show kubectl get sandboxclaims,sandboxes; fi

say "Back up and restore a running cluster"
show sandpool backup "$here/backup.db"
show sandpool restore "$here/backup.db"

say "Give access to one namespace only"
printf '$ sandpool token --namespace default --duration 1h > team.kubeconfig\n'
sandpool token --namespace default --duration 1h >"$here/team.kubeconfig"
if [ -n "$kubectl" ]; then
  show kubectl --kubeconfig "$here/team.kubeconfig" get nodes || true
fi

say "Done"
show sandpool down
