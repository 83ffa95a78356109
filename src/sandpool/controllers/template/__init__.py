"""The SandboxTemplate controller: labels templates and keeps the NetworkPolicy around all sandboxes of a template.

What may live here: decisions about templates and their policies. It sees kube.Api and caches only.
"""
