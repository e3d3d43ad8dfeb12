"""Every method there is. The union `Method` is where a method is registered: its `kind` names the
package beside this module that has all that is particular to it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from attnfuzz.generators.methods.all_gather.spec import AllGather
from attnfuzz.generators.methods.context_parallel.spec import ContextParallel
from attnfuzz.generators.methods.flex_context_parallel.spec import FlexContextParallel
from attnfuzz.generators.methods.heads.spec import Heads
from attnfuzz.generators.methods.ring.spec import Ring
from attnfuzz.generators.methods.ulysses.spec import Ulysses

Method = Annotated[
    Heads | AllGather | Ulysses | Ring | ContextParallel | FlexContextParallel,
    Field(discriminator="kind"),
]
"""How ranks share one attention. Their order is that in which programs are simpler."""
