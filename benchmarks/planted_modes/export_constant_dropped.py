"""The module of an exported program multiplies by 1 wherever it should by another constant."""

import torch.export

original = torch.export.ExportedProgram.module


def faulty(self, *args, **options):
    module = original(self, *args, **options)
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.mul.Tensor and isinstance(node.args[1], float):
            node.args = (node.args[0], 1.0)
        if node.target is torch.ops.aten.scaled_dot_product_attention.default:
            node.kwargs = {**node.kwargs, "scale": 1.0}
    module.recompile()
    return module


torch.export.ExportedProgram.module = faulty
