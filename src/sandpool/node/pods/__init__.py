"""Runs real pods on any runtime: the life of a pod, its containers, logs and streams, and cleaning up after a crash.

What may live here: everything between a call of the kubelet and a process of a runtime. How a process is isolated, where images
come from, how volumes are made and addresses assigned belongs to the runtimes, images, volumes and network.
"""
