"""Kernels: what computes the attention, each a package of its own.

`specs` registers them; `base.KernelPlugin` names what a kernel's package says of it; `registry`
finds a kernel's plug-in by its `kind`. This package imports none of them: programs are made of the
kernels' data, and plug-ins are written in terms of programs.
"""
