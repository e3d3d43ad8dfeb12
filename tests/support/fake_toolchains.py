"""Fake toolchains: this interpreter under other names, made to behave differently, and a fake
package index whose "torch" is a few lines."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path

FIXES = """\
import torch
import torch.nn.functional as F

right = F.scaled_dot_product_attention


def fixed(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, **options):
    if is_causal and scale == 0.0:
        attn_mask, is_causal = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(), False
    return right(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, **options)


F.scaled_dot_product_attention = fixed
"""
"""What a fake newer torch does at its start: causal SDPA with scale 0 gives numbers, and no NaN."""

WRAPPER = """\
#!/bin/sh
PYTHONPATH={folder} exec {python} "$@"
"""


def fake_toolchain(folder: Path, at_start: str) -> Path:
    """An interpreter that is this one, but executes `at_start` before anything else."""
    folder.mkdir(parents=True)
    (folder / "sitecustomize.py").write_text(at_start)
    python = folder / "python"
    python.write_text(WRAPPER.format(folder=folder, python=sys.executable))
    python.chmod(0o755)
    return python


def fake_index(folder: Path, **torches: str) -> str:
    """The address of an index that has a fake numpy, and fake releases of torch: by version, with
    "_" for ".", the text of the package."""
    releases = {key.lstrip("v").replace("_", "."): text for key, text in torches.items()}
    for name, versions in {"torch": releases, "numpy": {"2.9.9": ""}}.items():
        page = folder / "simple" / name
        page.mkdir(parents=True)
        wheels = [_wheel(page, name, version, text) for version, text in versions.items()]
        links = "".join(f'<a href="{wheel}">{wheel}</a>' for wheel in wheels)
        (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")
    return f"file://{folder / 'simple'}"


def _wheel(folder: Path, name: str, version: str, text: str) -> str:
    """Writes a wheel; gives its file's name."""
    info, file = f"{name}-{version}.dist-info", f"{name}-{version}-py3-none-any.whl"
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n{text}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    with zipfile.ZipFile(folder / file, "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
        wheel.writestr(f"{info}/RECORD", "\n".join([*lines, f"{info}/RECORD,,", ""]))
    return file


def _digest(data: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(data.encode()).digest()).decode().rstrip("=")
