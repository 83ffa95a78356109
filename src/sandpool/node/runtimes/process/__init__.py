"""Pods as plain processes of this machine: nothing is isolated, nothing is limited.

What may live here: the runtime without isolation and the child that keeps together what it starts. For platforms without
namespaces, and to prove that the tests of isolation can fail.
"""
