"""Hypothesis strategies for attention programs and their parts, usable in any Hypothesis test:
`programs.programs`, `masks.masks`, `scores.score_mods`, `shapes.shapes`, `inputs.layouts`.

All that they build is valid by construction (`model.validity`). Importing them imports no torch,
and importing this package, which holds swarms and profiles too, no Hypothesis.
"""
