"""Runs pods on this machine: the kubelet, the workers of pods, the runtimes that isolate them, images, volumes and network.

What may live here: everything between a Pod object and its processes. It talks to the API server only through `kube.Api` and knows
neither the control plane nor our controllers.
"""
