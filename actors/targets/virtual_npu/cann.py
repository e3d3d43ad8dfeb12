"""A stand-in for CANN, the libraries of an Ascend NPU that the real torch_npu needs to be imported.

torch_npu is linked against six of CANN's libraries, and looks further functions up by name. All of
them are there, do nothing, and say that all went well; a handful say what torch_npu cannot do
without: that there is one device, which NPU it is, handles that are not null. Which functions
there must be is read from the installed torch_npu. Nothing can be computed, so its tensors are
fake; operators, schemas, meta functions and DTensor's rules are torch_npu's own.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from attnfuzz.actors.targets.stand_in_library import ShimError, kept, package_folder, without_cuda
from attnfuzz.actors.targets.virtual_npu.npus import Npu

LIBRARIES = ("ascendcl", "hccl", "acl_op_compiler", "ge_runner", "graph", "acl_tdt_channel")
"""Those that torch_npu's libraries name as needed, as `objdump -p` shows."""

DRIVER = Path("/dev/davinci_manager")
"""There where an Ascend NPU's driver is."""

LINKED = re.compile(r"(acl|rt|Msprof|Hccl)\w+")
LOOKED_UP = re.compile(rb"\0((?:acl(?!nn|tdt)|Hccl[A-Z])\w{2,60})(?=\0)")
"""Names of functions of CANN: those that a library is linked against, and those that it has as
strings, of the runtime and the collectives. (`aclnn` operators are of a library that is not
there.)"""

HANDLES = re.compile(r"aclrt(Create(Stream|Event|Context)\w*|GetCurrentContext)")
ANSWERS = {
    "aclrtGetDeviceCount": "int aclrtGetDeviceCount(unsigned *count) { *count = 1; return 0; }",
    "aclrtGetDevice": "int aclrtGetDevice(int *device) { *device = 0; return 0; }",
    "aclGetRecentErrMsg": 'const char *aclGetRecentErrMsg() { return ""; }',
    # The value of a compiler's option, "0", and its size with the end.
    "aclGetCompileoptSize": "unsigned long aclGetCompileoptSize(int) { return 2; }",
    "aclGetCompileopt": (
        "int aclGetCompileopt(int, char *value, unsigned long size) "
        '{ for (unsigned long i = 0; i < size && i < 2; ++i) value[i] = "0"[i]; return 0; }'
    ),
}


def load(cache: Path, npu: Npu) -> None:
    """Builds the libraries in `cache` unless they are there, and loads them, so that `import
    torch_npu` finds them. Raises ShimError when this machine has a real NPU, or torch or torch_npu
    cannot be stood in for."""
    if DRIVER.exists():
        raise ShimError(f"{DRIVER} is there: this machine has an NPU, which is not to be faked")
    if "torch_npu" in sys.modules:
        raise ShimError("torch_npu is imported already; the virtual device must come before it")
    torch, torch_npu = without_cuda(package_folder("torch")), package_folder("torch_npu")
    os.environ["TASK_QUEUE_ENABLE"] = "0"  # else it starts threads, and a zygote has none
    version = (torch_npu / "version.py").read_text()
    text = source(sorted(functions(torch, torch_npu)), npu)
    behind: tuple[str, ...] = ()
    for name in LIBRARIES:
        # The first has the functions. The others need it, so that what looks in them finds it.
        options = ("-w", f"-Wl,-soname,lib{name}.so", "-Wl,--no-as-needed", *behind)
        library = kept(cache, f"lib{name}", (version,), options, "" if behind else text)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        behind = behind or (str(library),)


def source(names: Iterable[str], npu: Npu) -> str:
    """C++ that defines those functions."""
    definitions = ANSWERS | {
        "aclrtGetSocName": f'const char *aclrtGetSocName() {{ return "{npu.soc}"; }}',
    }
    lines = [
        definitions.get(name) or _handle(name) or f"long {name}() {{ return 0; }}" for name in names
    ]
    return 'extern "C" {\nstatic char some;\n' + "\n".join(lines) + "\n}\n"


def _handle(name: str) -> str | None:
    """A function that makes something, known by an address that is not null."""
    made = f"int {name}(void **made) {{ *made = &some; return 0; }}"
    return made if HANDLES.fullmatch(name) else None


def functions(torch: Path, torch_npu: Path) -> set[str]:
    """The names of CANN's functions that the libraries of that torch_npu need or look up. Raises
    ShimError."""
    own = [*torch_npu.glob("lib/*.so"), *torch_npu.glob("_C*.so")]
    main = torch_npu / "lib" / "libtorch_npu.so"
    if main not in own:
        raise ShimError(f"{main} is not there; is that torch_npu built for an Ascend NPU?")
    given = set(_symbols("--defined-only", [*own, *(torch / "lib").glob("*.so")]))
    needed = set(_symbols("--undefined-only", [main, *torch_npu.glob("_C*.so")]))
    linked = {name for name in needed if LINKED.fullmatch(name)}
    looked_up = {name.decode() for name in LOOKED_UP.findall(main.read_bytes())}
    return (linked | looked_up) - given


def _symbols(which: str, libraries: Iterable[Path]) -> Iterator[str]:
    """Names of dynamic symbols. Those with a version are of the C library and those below it."""
    nm = shutil.which("nm")
    if nm is None:
        raise ShimError("there is no nm (of binutils), which reads what torch_npu needs")
    ran = subprocess.run(
        [nm, "-D", which, *map(str, libraries)], capture_output=True, text=True, check=False
    )
    for line in ran.stdout.splitlines():
        words = line.split()
        if words and "@" not in words[-1]:
            yield words[-1]
