"""Manifests as a user writes them."""

from __future__ import annotations

TEMPLATE = """
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxTemplate
metadata:
  name: python
spec:
  podTemplate:
    spec:
      containers:
        - name: main
          image: python:3.13
          command: ["sleep", "infinity"]
          ports:
            - containerPort: 8080
              protocol: TCP
"""

POOL = """
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata:
  name: python
spec:
  replicas: 3
  sandboxTemplateRef:
    name: python
"""

CLAIM = """
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxClaim
metadata:
  name: mine
  labels:
    team: red
spec:
  warmPoolRef:
    name: python
"""

SANDBOX = """
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata:
  name: box
  labels:
    team: red
spec:
  podTemplate:
    spec:
      containers:
        - name: main
          image: python:3.13
"""

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: lonely
  labels:
    app: web
spec:
  containers:
    - name: main
      image: nginx
      ports:
        - containerPort: 80
"""

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  colour: blue
"""

ALL = "---".join((TEMPLATE, POOL, CLAIM, SANDBOX, POD, CONFIG_MAP))
