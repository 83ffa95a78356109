"""The Sandbox controller: keeps one pod, its storage and its Service as a Sandbox specifies, and reports them in its status.

What may live here: decisions about one sandbox and the writes that carry them out. It sees kube.Api and caches only.
"""
