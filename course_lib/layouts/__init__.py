"""The maths of where things are and when: numpy only, no JAX, no widgets.

- `grid`: in which order a grid's blocks run, the waves they form, what a wave reads.
- `tiling`, `swizzle`, `smem`: from a logical index to a byte address and a bank, and back.
- `registers`: from an element to the thread and register that hold it, and back.
- `tmem`: the same for tensor memory's lanes and columns.
- `banks`: conflicts of a transfer between registers and shared memory, and their reason.
- `pipeline`: when a software pipeline loads and computes.
- `units`: bytes in words.

Each function here has a twin in `explorer/*.mjs` that answers the same.
"""
