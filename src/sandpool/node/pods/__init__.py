"""Real pods on any runtime: the pod's life, its containers' commands, logs, streams, and what is left after a crash.

What may live here: everything between an order of the kubelet and a process of a runtime. How a process is isolated, where an image's
files come from, how a volume is made and how addresses are given is asked of others.
"""
