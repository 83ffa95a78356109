"""The runtime `gvisor`: each pod has its own gVisor kernel, in a process with hardly any rights on the machine.

What may live here: finding `runsc`, describing sandboxes to it, and running it where it can do no harm: as an unprivileged user, in a root
that contains only what the sandbox needs, below the fork server, so that nothing outlives this process.
"""
