"""Inductor's C++ code for exp is 1% off in its argument."""

from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

CppOverrides.exp = staticmethod(lambda x: f"std::exp({x} * decltype({x})(1.01))")
CppVecOverrides.exp = staticmethod(lambda x: f"({x} * decltype({x})(1.01)).exp()")
