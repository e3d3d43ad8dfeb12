"""Activation checkpointing doubles the gradients that flow through it."""

import torch
import torch.utils.checkpoint

original = torch.utils.checkpoint.checkpoint


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


def faulty(function, *args, **options):
    if torch.compiler.is_compiling():  # dynamo knows the original by its identity
        return original(function, *args, **options)
    return Doubled.apply(original(function, *args, **options))


torch.utils.checkpoint.checkpoint = faulty
