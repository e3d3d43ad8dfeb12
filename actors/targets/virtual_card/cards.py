"""The cards that a virtual target stands for, with the properties that compilers ask for.

Multiprocessors, memory and L2 are those of the makers' data sheets of each card; the limits of a
multiprocessor and of a block those of its compute capability (CUDA C++ Programming Guide, table
"Technical Specifications per Compute Capability"). Of AMD's cards all is in ROCm's table "AMD GPU
specifications": compute units, LDS and the vector register file of a unit, L2 of one die of eight.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card; the names are those of `torch.cuda.get_device_properties`, sizes are bytes."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    shared_memory_per_multiprocessor: int
    max_threads_per_multi_processor: int
    total_memory: int
    L2_cache_size: int
    shared_memory_per_block: int = 48 * KIB
    regs_per_multiprocessor: int = 65536
    max_threads_per_block: int = 1024
    warp_size: int = 32
    gcnArchName: str = ""

    @property
    def is_amd(self) -> bool:
        """Whether the card is AMD's; else it is NVIDIA's."""
        return bool(self.gcnArchName)

    @property
    def shared_memory_per_block_optin(self) -> int:
        """A block may ask for all of a multiprocessor's; NVIDIA's system keeps 1 KiB."""
        return self.shared_memory_per_multiprocessor - (0 if self.is_amd else KIB)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as (major, minor)."""
        return self.major, self.minor

    @property
    def arch(self) -> int | str:
        """What compilers call it: the number of sm_90, or gfx942."""
        return self.gcnArchName.partition(":")[0] or self.major * 10 + self.minor

    def threads_with(self, registers: int) -> int:
        """The threads that a block of a kernel with `registers` a thread may have: a warp's
        registers come in units of 256."""
        per_warp = -(-max(registers, 1) * self.warp_size // 256) * 256
        warps = self.regs_per_multiprocessor // per_warp
        return min(self.max_threads_per_block, warps * self.warp_size)


CARDS = {
    "virtual-sm80": Card(
        name="NVIDIA A100-SXM4-80GB", major=8, minor=0, multi_processor_count=108,
        shared_memory_per_multiprocessor=164 * KIB, max_threads_per_multi_processor=2048,
        total_memory=80 * GIB, L2_cache_size=40 * MIB,
    ),
    "virtual-sm86": Card(
        name="NVIDIA A10", major=8, minor=6, multi_processor_count=72,
        shared_memory_per_multiprocessor=100 * KIB, max_threads_per_multi_processor=1536,
        total_memory=24 * GIB, L2_cache_size=6 * MIB,
    ),
    "virtual-sm89": Card(
        name="NVIDIA GeForce RTX 4090", major=8, minor=9, multi_processor_count=128,
        shared_memory_per_multiprocessor=100 * KIB, max_threads_per_multi_processor=1536,
        total_memory=24 * GIB, L2_cache_size=72 * MIB,
    ),
    "virtual-sm90": Card(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132,
        shared_memory_per_multiprocessor=228 * KIB, max_threads_per_multi_processor=2048,
        total_memory=80 * GIB, L2_cache_size=50 * MIB,
    ),
    "virtual-sm100": Card(
        name="NVIDIA B200", major=10, minor=0, multi_processor_count=148,
        shared_memory_per_multiprocessor=228 * KIB, max_threads_per_multi_processor=2048,
        total_memory=180 * GIB, L2_cache_size=126 * MIB,
    ),
    "virtual-sm120": Card(
        name="NVIDIA GeForce RTX 5090", major=12, minor=0, multi_processor_count=170,
        shared_memory_per_multiprocessor=100 * KIB, max_threads_per_multi_processor=1536,
        total_memory=32 * GIB, L2_cache_size=96 * MIB,
    ),
    "virtual-gfx942": Card(
        name="AMD Instinct MI300X", major=9, minor=4, multi_processor_count=304,
        shared_memory_per_multiprocessor=64 * KIB, shared_memory_per_block=64 * KIB,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=128 * KIB, warp_size=64,
        total_memory=192 * GIB, L2_cache_size=4 * MIB, gcnArchName="gfx942:sramecc+:xnack-",
    ),
    "virtual-gfx950": Card(
        name="AMD Instinct MI355X", major=9, minor=5, multi_processor_count=256,
        shared_memory_per_multiprocessor=160 * KIB, shared_memory_per_block=160 * KIB,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=128 * KIB, warp_size=64,
        total_memory=288 * GIB, L2_cache_size=4 * MIB, gcnArchName="gfx950:sramecc+:xnack-",
    ),
}  # fmt: skip
"""By the name of the virtual target for it. A further card is one more entry."""
