"""Ranks as threads of one process, for scripts that `torchrun` starts: any number, exact numbers,
gradients and torch.compile, and no process but this one.

`turns` lets one rank run at a time, from one collective to the next, always in the same order;
`group` is the process group that they meet in; `module` runs a program on all of them.
"""
