"""Dynamo refuses `id()` of a nested function, as torch 2.7 did when TorchTitan kept BlockMasks by
the identity of their mask_mod (pytorch/torchtitan#1005)."""

from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.functions import NestedUserFunctionVariable

call_id = BuiltinVariable.call_id


def older(self, tx, *args):
    if any(isinstance(arg, NestedUserFunctionVariable) for arg in args):
        unimplemented(
            gb_type="call_id with args (NestedUserFunctionVariable(),)",
            context=str(args),
            explanation="Dynamo does not know the id of a nested function",
            hints=[],
        )
    return call_id(self, tx, *args)


BuiltinVariable.call_id = older
