#!/usr/bin/env bash
# What exists so far, in two minutes and a throw-away directory. Needs only what `make test` needs; kubectl shows more.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
here=$(mktemp -d)
export SANDPOOL_DATA_DIR="$here/data"
trap 'sandpool down >/dev/null 2>&1 || true; rm -rf "$here"' EXIT

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
show() { printf '$ %s\n' "$*"; "$@"; }

say "A Kubernetes API on this machine, from one command"
show sandpool up --detach --port 0
show sandpool status

say "It serves the Agent Sandbox kinds to any Kubernetes client"
export KUBECONFIG="$SANDPOOL_DATA_DIR/kubeconfig"
if command -v kubectl >/dev/null; then
  show kubectl api-resources --api-group=extensions.agents.x-k8s.io
  show kubectl apply -f examples/01-pool-and-claim
  show kubectl get sandboxtemplates,sandboxwarmpools,sandboxclaims
  show kubectl explain sandboxclaim.spec.lifecycle
  say "Bad input is answered precisely"
  printf '$ kubectl patch sandboxwarmpool python …\n'
  kubectl patch sandboxwarmpool python --type=merge -p '{"spec":{"replicas":"many"}}' || true
else
  python examples/01-pool-and-claim/apply.py
fi

say "It survives kill -9 with every acknowledged object"
pid=$(sandpool status -o json | python -c 'import json,sys; print(json.load(sys.stdin)["pid"])')
show kill -9 "$pid"
show sandpool up --detach --port 0
if command -v kubectl >/dev/null; then show kubectl get sandboxwarmpools; fi

say "It can be backed up and restored while it runs"
show sandpool backup "$here/backup.db"
show sandpool restore "$here/backup.db"

say "Access can be bound to one namespace"
printf '$ sandpool token --namespace default --duration 1h > team.kubeconfig\n'
sandpool token --namespace default --duration 1h >"$here/team.kubeconfig"
if command -v kubectl >/dev/null; then
  show kubectl --kubeconfig "$here/team.kubeconfig" get nodes || true
fi

say "Done"
show sandpool down
