"""compile_error at dynamo: InternalTorchDynamoError: PendingUnbackedSymbolNotFound: Pending
unbacked symbols {u1} not in returned outputs FakeTensor(..., size=(2, 1, 16, 16)) ((256, …"""

import torch


def attention(q, v, sink):
    sink = sink.unsqueeze(0)
    sink = sink.unsqueeze(2)
    sink = sink.unsqueeze(3)
    sink = sink.expand(2, -1, -1, -1)
    sink = sink.expand(-1, -1, 16, -1)
    scores = torch.cat((q, sink), dim=3)
    probs = scores[:, :, :, :-1]
    out = torch.matmul(probs, v)
    return out


compiled = torch.compile(attention, backend="eager", fullgraph=True)

torch.manual_seed(0)
q = torch.randn(2, 1, 16, 16)
v = torch.randn(2, 1, 16, 16)
sink = torch.randn(1)
torch._dynamo.decorators.mark_unbacked(q, 0, shape_id="B")
torch._dynamo.decorators.mark_unbacked(v, 0, shape_id="B")

compiled(q, v, sink)
