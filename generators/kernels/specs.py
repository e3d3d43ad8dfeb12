"""Every kernel there is. The union `Kernel` is where a kernel is registered: its `kind` names the
package beside this module that has all that is particular to it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from attnfuzz.generators.kernels.attention_gym.spec import AttentionGym
from attnfuzz.generators.kernels.diffusers.spec import Diffusers
from attnfuzz.generators.kernels.flash_attn.spec import FlashAttn
from attnfuzz.generators.kernels.flex.spec import Flex
from attnfuzz.generators.kernels.function.spec import Function
from attnfuzz.generators.kernels.graph.spec import Graph
from attnfuzz.generators.kernels.handwritten.spec import Handwritten
from attnfuzz.generators.kernels.multihead_attention.spec import MultiheadAttention
from attnfuzz.generators.kernels.nested_sdpa.spec import NestedSdpa
from attnfuzz.generators.kernels.npu_fusion_attention.spec import NpuFusionAttention
from attnfuzz.generators.kernels.ring_flash_attn.spec import RingFlashAttn
from attnfuzz.generators.kernels.sdpa.spec import Sdpa
from attnfuzz.generators.kernels.torchtitan.spec import Torchtitan
from attnfuzz.generators.kernels.torchtune.spec import Torchtune
from attnfuzz.generators.kernels.transformer_layer.spec import TransformerLayer
from attnfuzz.generators.kernels.transformers.spec import Transformers
from attnfuzz.generators.kernels.varlen.spec import Varlen
from attnfuzz.generators.kernels.yunchang.spec import Yunchang

Kernel = Annotated[
    Sdpa
    | Flex
    | Handwritten
    | FlashAttn
    | NpuFusionAttention
    | Function
    | MultiheadAttention
    | TransformerLayer
    | NestedSdpa
    | Varlen
    | Graph
    | Transformers
    | Torchtitan
    | Yunchang
    | Diffusers
    | AttentionGym
    | Torchtune
    | RingFlashAttn,
    Field(discriminator="kind"),
]
"""What computes the attention. Their order is part of the order in which programs are simpler: a
new kernel is appended."""
