"""CUDA cards that are not there: programs are compiled for them, to cubins, and nothing runs.

The zygote loads these files by path: standard library, torch and triton alone.
"""
