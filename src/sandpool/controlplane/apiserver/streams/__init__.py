"""Streams of pods: logs, exec, attach and port-forward, over plain HTTP, WebSocket and SPDY/3.1.

Codecs (wire/websocket.py, spdy/) are pure: bytes in, events out. Pods are reached only through `model/pod_streams.py`.
"""
