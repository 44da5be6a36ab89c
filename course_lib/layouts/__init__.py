"""The maths of where things are and when: numpy only, no JAX, no widgets.

- `grid`: in which order a grid's blocks run, the waves they form, what a wave reads.
- `units`: bytes in words.

Each function here has a twin in `explorer/layouts.mjs` that answers the same.
"""
