"""`sandpool crds`: the CustomResourceDefinitions, for a cluster that is not ours."""

from __future__ import annotations


def crds() -> None:
    """Print the CustomResourceDefinitions of the four kinds, ready for `kubectl apply -f -`."""
    from sandpool.model.crds import crds_yaml

    print(crds_yaml(), end="")
