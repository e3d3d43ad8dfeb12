"""The ring's backward pass goes on with the keys and values that it got first, from its third step
on: wrong from three ranks on."""

import threading

from torch.distributed.tensor.experimental._context_parallel import _attention

backward = _attention._templated_ring_attention_backward
rotater = _attention._create_rotater
state = threading.local()


class Stale:
    """A rotater that gives what it gave before, from the second time on."""

    def __init__(self, rotater):
        self.rotater, self.first = rotater, None

    def exchange_buffers(self, buffer):
        self.rotater.exchange_buffers(buffer)

    def next_buffer(self):
        found = self.rotater.next_buffer()
        self.first = found if self.first is None else self.first
        return self.first


def create(pg, seq_dim, method=None):
    made = rotater(pg, seq_dim, method)
    return Stale(made) if getattr(state, "backward", False) and method is None else made


def faulty(*args, **kwargs):
    state.backward = True
    try:
        return backward(*args, **kwargs)
    finally:
        state.backward = False


_attention._create_rotater = create
_attention._templated_ring_attention_backward = faulty
