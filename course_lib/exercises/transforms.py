"""The exercises of chapter 03: tiles by hand, addresses, a swizzle that fits, transposed refs."""

from __future__ import annotations

from course_lib.exercises.registry import Case, Exercise, Spec, register
from course_lib.kernels import transforms as kernels


def _cases(*specs: tuple[tuple[int, ...], str]) -> tuple[Case, ...]:
    return tuple(Case((Spec(shape, dtype),)) for shape, dtype in specs)


_PLACES = (Spec((256,), "uint32"), Spec((256,), "uint32"))

register(
    Exercise(
        id="transforms.tiled_by_hand",
        function="tiled_by_hand",
        title="Tiles by hand",
        statement=(
            "Fill tiles_smem, which has an axis for a tile's row of tiles, one for its column of "
            "tiles, and two for the elements in the tile: one copy per tile of 8 x 64. Then send "
            "the whole buffer to y_gmem. That is the order in which TilingTransform((8, 64)) "
            "stores x."
        ),
        signature="tiled_by_hand(x: float[m, n]) -> float[m // 8, n // 64, 8, 64]",
        lines=8,
        reference=kernels.tiled_reference,
        cases=_cases(((32, 128), "bfloat16"), ((8, 192), "float16"), ((64, 64), "float32")),
        hints=(
            "There are tiles[0] * tiles[1] tiles, and each needs a copy from its place in x_gmem "
            "to its place in tiles_smem. With tile i: mi = i // tiles[1] is its row of tiles, and "
            "ni = i % tiles[1] its column of tiles. A place in x_gmem is counted in elements, a "
            "place in tiles_smem in tiles.",
            "The source is x_gmem.at[pl.ds(mi * 8, 8), pl.ds(ni * 64, 64)], the destination "
            "tiles_smem.at[mi, ni]: an index with fewer numbers than axes names a part. Wait for "
            "each copy before you start the next, as there is one barrier. At the end "
            "copy_smem_to_gmem(tiles_smem, y_gmem) and the wait that belongs to it.",
            "@pl.loop(0, tiles[0] * tiles[1])\n"
            "def _(i):\n"
            "    mi, ni = i // tiles[1], i % tiles[1]\n"
            "    part_gmem = x_gmem.at[pl.ds(mi * 8, 8), pl.ds(ni * 64, 64)]\n"
            "    plgpu.copy_gmem_to_smem(part_gmem, tiles_smem.at[mi, ni], loaded)\n"
            "    plgpu.barrier_wait(loaded)\n"
            "plgpu.copy_smem_to_gmem(tiles_smem, y_gmem)\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1},
    )
)

register(
    Exercise(
        id="transforms.addresses",
        function="addresses",
        title="From an index to an address",
        statement=(
            "A buffer of 64 x 128 bfloat16 has TilingTransform((8, swizzle // 2)) and "
            "SwizzleTransform(swizzle). Compute the byte address, counted from the buffer's "
            "start, of element (r, c), for whole vectors of r and c."
        ),
        signature=(
            "addresses(row: uint32[n], column: uint32[n], *, swizzle: int) -> uint32[n], "
            "row modulo 64 and column modulo 128"
        ),
        lines=4,
        reference=kernels.addresses_reference,
        cases=tuple(Case(_PLACES, {"swizzle": swizzle}) for swizzle in (128, 64, 32)),
        hints=(
            "Three steps. Which tile is it in, tiles being numbered row by row? Which place has "
            "it within the tile, row by row? Then bytes, and the swizzle last: it works on byte "
            "addresses. A tile has 8 * width elements.",
            "tile = r // 8 * (128 // width) + c // width, and the place within the tile is "
            "r % 8 * width + c % width. An element has 2 bytes. The swizzle XORs bits 4 and up "
            "with the bits from 7 on: 3 of them for 128 bytes, 2 for 64, 1 for 32.",
            "tile = r // 8 * (128 // width) + c // width\n"
            "in_tile = r % 8 * width + c % width\n"
            "address = 2 * (tile * 8 * width + in_tile)\n"
            "address = address ^ (((address >> 7) & (swizzle // 16 - 1)) << 4)",
        ),
    )
)

register(
    Exercise(
        id="transforms.chosen",
        function="chosen",
        title="The widest swizzle that fits",
        statement=(
            "Write mma_transforms(shape, dtype): the pair of TilingTransform((8, columns)) and "
            "SwizzleTransform(swizzle), with the widest swizzle of 128, 64 and 32 bytes that "
            "divides the bytes of a row, and as many columns as it has room for. If the number of "
            "rows is no multiple of 8, raise a ValueError. The kernel around it moves x through a "
            "buffer with these transforms, and writes down what they are, and whether a matrix "
            "with four rows fewer was refused."
        ),
        signature=(
            "chosen(x: any[m, n]) -> (x, int32[4]: tile rows, tile columns, swizzle, refused)"
        ),
        lines=5,
        reference=kernels.chosen_reference,
        cases=_cases(
            ((64, 128), "bfloat16"),
            ((32, 96), "float16"),
            ((16, 24), "float32"),
            ((32, 96), "int8"),
            ((64, 32), "float32"),
        ),
        hints=(
            "A row has shape[1] * dtype.itemsize bytes. The tile is as wide as the swizzle, in "
            "elements: swizzle // dtype.itemsize of them. A width that does not divide the row "
            "does not fit. The number of rows is shape[0].",
            "plgpu.find_swizzle(bits) does the search: it takes the width of a row in BITS and "
            "returns the swizzle in BYTES. It knows one more width, 16, for which there is no "
            "SwizzleTransform.",
            "if shape[0] % 8:\n"
            '    raise ValueError("the number of rows must be a multiple of 8")\n'
            "swizzle = plgpu.find_swizzle(shape[1] * dtype.itemsize * 8)\n"
            "columns = swizzle // dtype.itemsize\n"
            "return plgpu.TilingTransform((8, columns)), plgpu.SwizzleTransform(swizzle)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1},
    )
)

register(
    Exercise(
        id="transforms.swap_axes",
        function="swap_axes",
        title="Swap two axes on the way",
        statement=(
            "Return x with its first two axes swapped: y[h, m] is x[m, h]. One block brings x "
            "into x_smem and sends it out again; one of the two copies goes through a transposed "
            "ref, so that no lane touches the data."
        ),
        signature="swap_axes(x: float[m, heads, n]) -> float[heads, m, n]",
        lines=4,
        reference=kernels.swap_axes_reference,
        cases=_cases(((16, 4, 64), "float32"), ((32, 2, 128), "bfloat16"), ((8, 8, 64), "float16")),
        hints=(
            "x_smem.transpose(...) is another view of the same memory, as x.T is in NumPy. Both "
            "ends of a copy need the same shape: which view of x_smem has the shape of y_gmem?",
            "In with plgpu.copy_gmem_to_smem and its wait, as ever. The view with the first two "
            "axes swapped is x_smem.transpose((1, 0, 2)).",
            "plgpu.copy_gmem_to_smem(x_gmem, x_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "plgpu.copy_smem_to_gmem(x_smem.transpose((1, 0, 2)), y_gmem)\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1},
        forbids=("get", "swap", "transpose"),
    )
)

register(
    Exercise(
        id="transforms.transposed",
        function="transposed",
        title="Transpose without bank conflicts",
        statement=(
            "Return x.T. Block (mi, ni) takes the 64 x 64 at that place: a copy into x_smem, a "
            "load in plgpu.Layout.WGMMA, a layout_cast to WGMMA_TRANSPOSED (float32 cannot do "
            "without it), a store into the transposed y_smem, and a copy out to the mirrored place."
        ),
        signature="transposed(x: float[m, n]) -> float[n, m], m and n multiples of 64",
        lines=8,
        reference=kernels.transposed_reference,
        cases=_cases(((64, 128), "bfloat16"), ((128, 64), "float32"), ((128, 128), "float16")),
        hints=(
            "Two things are mirrored: the elements within a block, by the store into "
            "y_smem.transpose((1, 0)), and the block's place, by where the copy out goes. The "
            "store is the lanes' work, so the copy out has to be told of it.",
            "block = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA), then "
            "plgpu.layout_cast(block, plgpu.Layout.WGMMA_TRANSPOSED). A ref is written with "
            "[...] = also where it is a transposed view. The copy out goes to "
            "y_gmem.at[columns, rows].",
            "plgpu.copy_gmem_to_smem(x_gmem.at[rows, columns], x_smem, loaded)\n"
            "plgpu.barrier_wait(loaded)\n"
            "block = plgpu.load(x_smem, layout=plgpu.Layout.WGMMA)\n"
            "block = plgpu.layout_cast(block, plgpu.Layout.WGMMA_TRANSPOSED)\n"
            "y_smem.transpose((1, 0))[...] = block\n"
            "plgpu.commit_smem()\n"
            "plgpu.copy_smem_to_gmem(y_smem, y_gmem.at[columns, rows])\n"
            "plgpu.wait_smem_to_gmem(0)",
        ),
        requires={"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1},
        forbids=("transpose",),
    )
)
