"""The objects that `sandpool pool create` makes. Pure."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pool_body(name: str, template: str, replicas: int) -> Json:
    return {"metadata": {"name": name}, "spec": {"replicas": replicas, "sandboxTemplateRef": {"name": template}}}


def template_body(name: str, image: str, command: tuple[str, ...] = ()) -> Json:
    """As hardened as the template that a local cluster begins with: it is that one, with another image and perhaps another command."""
    from sandpool.install.first_pool import template_body as first_template

    body = first_template()
    body["metadata"]["name"] = name
    main = body["spec"]["podTemplate"]["spec"]["containers"][0]
    main["image"] = image
    if command:
        main["command"] = list(command)
    return body
