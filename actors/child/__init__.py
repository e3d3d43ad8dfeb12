"""What runs in a forked child: one program's execution and the oracles that judge it.

Needs the standard library and torch alone. `main` is the way in.
"""
