"""What a compiled kernel, an ELF file, uses of a card: NVIDIA's cubins and AMD's code objects."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

REGISTERS, STACK_FRAME = 0x2F, 0x11
"""Attributes of a cubin's kernel, as `cuobjdump -elf` names them: REGCOUNT and FRAME_SIZE."""


@dataclass(frozen=True)
class Usage:
    """Registers and bytes of stack (where registers are spilled to) of a thread; `max_threads` of a
    block where the binary limits them, else 0."""

    registers: int
    stack_bytes: int
    max_threads: int = 0


def of_cubin(cubin: bytes) -> Usage:
    """Of a kernel for an NVIDIA card."""
    found = _attributes(cubin)
    return Usage(found.get(REGISTERS, 0), found.get(STACK_FRAME, 0))


def of_code_object(hsaco: bytes) -> Usage:
    """Of a kernel for an AMD card: what its metadata, a MessagePack map in a note, has under the
    names of LLVM's AMDGPU guide ("Code Object V5 Metadata")."""
    return Usage(
        _largest(hsaco, b".vgpr_count"),
        _largest(hsaco, b".private_segment_fixed_size"),
        _largest(hsaco, b".max_flat_workgroup_size"),
    )


def _largest(hsaco: bytes, name: bytes) -> int:
    """The largest unsigned integer under `name`: one byte below 128, or 1, 2 or 4 bytes after a
    byte that says so."""
    number = rb"(?:\xcc(.)|\xcd(..)|\xce(....)|([\x00-\x7f]))"
    found = re.finditer(re.escape(name) + number, hsaco, re.DOTALL)
    return max((int.from_bytes(b"".join(m.groups(b"")), "big") for m in found), default=0)


def _attributes(cubin: bytes) -> dict[int, int]:
    """What the section `.nv.info` says: for each attribute of a symbol its largest value. A record
    is a format, an attribute (a byte each) and 16 bits that are the value itself, or with format 4
    the size of what follows: a symbol and a value."""
    found: dict[int, int] = {}
    for place, end in _sections(cubin, b".nv.info"):
        while place < end:
            form, attribute, value = struct.unpack_from("<BBH", cubin, place)
            if form == 4 and value == 8:  # of the kernel, and of each function that it calls
                stated = struct.unpack_from("<II", cubin, place + 4)[1]
                found[attribute] = max(stated, found.get(attribute, 0))
            place += 4 + (value if form == 4 else 0)
    return found


def _sections(elf: bytes, wanted: bytes) -> Iterator[tuple[int, int]]:
    """Where the sections of that name begin and end."""
    (at,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", elf, at + i * size) for i in range(count)]
    strings = sections[names][4]
    for section in sections:
        start = strings + section[0]
        if elf[start : elf.index(b"\0", start)] == wanted:
            yield section[4], section[4] + section[5]
