"""Methods: how several ranks compute one attention, each a package of its own.

`specs` registers them; `base.MethodPlugin` names what a method's package says of it; `registry`
finds a method's plug-in by its `kind`. This package imports none of them, as with kernels.
"""
