"""Makes `tests/golden/kuberay.json` of KubeRay's published custom resource definitions:

    python -m tests.support.slim_crds CRDS-FOLDER COMMIT

What our manifests say is kept with everything beside it, so that a wrong name is seen; what they
do not say keeps its type alone. Descriptions are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy" / "kuberay"
SLIM = ROOT / "tests" / "golden" / "kuberay.json"
ABOUT = (
    "Slim copy of the schemas of KubeRay's custom resource definitions: types and names of fields. "
    "https://github.com/ray-project/kuberay, Apache-2.0, Copyright the KubeRay authors."
)
KEPT = ("type", "enum", "required", "format", "minimum", "maximum", "pattern", "minLength")
FREE = "x-kubernetes-preserve-unknown-fields"


def slim(schema: dict[str, Any], said: list[Any]) -> dict[str, Any]:
    """`schema` as far as the values `said` of it go."""
    found = {key: schema[key] for key in KEPT if key in schema}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if "items" in schema:
        found["items"] = slim(schema["items"], [x for one in said for x in one or ()])
    if "properties" in schema:
        found["properties"] = {
            name: slim(inner, inside) if (inside := inner_of(said, name)) else shallow(inner)
            for name, inner in sorted(schema["properties"].items())
        }
        found["additionalProperties"] = bool(schema.get(FREE))
    elif isinstance(schema.get("additionalProperties"), dict):
        values = [x for one in said if isinstance(one, dict) for x in one.values()]
        found["additionalProperties"] = slim(schema["additionalProperties"], values)
    return found


def inner_of(said: list[Any], name: str) -> list[Any]:
    """What is said under `name`."""
    return [one[name] for one in said if isinstance(one, dict) and name in one]


def shallow(schema: dict[str, Any]) -> dict[str, Any]:
    """The type alone."""
    return {"type": schema["type"]} if "type" in schema else {}


def main(folder: Path, commit: str) -> None:
    """Writes the file."""
    manifests = [yaml.safe_load(path.read_text()) for path in sorted(MANIFESTS.glob("*.yaml"))]
    found: dict[str, Any] = {}
    for path in sorted(folder.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        kind = crd["spec"]["names"]["kind"]
        said = [one for one in manifests if one["kind"] == kind]
        versions = [one for one in crd["spec"]["versions"] if one["name"] == "v1"]
        if said and versions:
            found[kind] = slim(versions[0]["schema"]["openAPIV3Schema"], said)
    data = {"about": ABOUT, "commit": commit, "v1": found}
    SLIM.write_text(json.dumps(data, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
