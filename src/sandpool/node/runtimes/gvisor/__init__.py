"""The runtime `gvisor`: each pod on a kernel of its own, gVisor's, in a process of the machine that may do next to nothing.

What may live here: finding `runsc`, describing sandboxes to it, and running it where it cannot harm anybody: as nobody, in a
root that holds nothing but what the sandbox needs, below the fork-server, so that nothing outlives this process.
"""
