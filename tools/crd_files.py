"""Writes deploy/crds from the types in sandpool.model."""

from __future__ import annotations

from pathlib import Path

from sandpool.model.crds import crds, to_yaml

TARGET = Path(__file__).parent.parent / "deploy/crds"


def main() -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for definition in crds():
        path = TARGET / f"{definition['metadata']['name']}.yaml"
        path.write_text(to_yaml(definition))
        print(path)


if __name__ == "__main__":
    main()
