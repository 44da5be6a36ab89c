"""Wrong answers to wgmma_pipelining.epilogue."""

from __future__ import annotations

import jax.experimental.pallas.mosaic_gpu as plgpu

from course_lib.kernels import wgmma_pipelining as kernels
from tests.wrong_answers import Wrong


def _product(a, b, width, *, n=1, commit=True, last=0, buffer=lambda i: i % 2, first=0):
    """The notebook's frame; the parts of the epilogue that can be wrong."""

    def epilogue(value, buffers_smem, o_gmem):
        for i in range(first, 256 // width):
            cols = slice(i * width, (i + 1) * width)
            if n is not None:
                plgpu.wait_smem_to_gmem(n, wait_read_only=True)
            buffers_smem[buffer(i)] = value[:, cols]
            if commit:
                plgpu.commit_smem()
            plgpu.copy_smem_to_gmem(buffers_smem.at[buffer(i)], o_gmem.at[:, cols])
        if last is not None:
            plgpu.wait_smem_to_gmem(last)

    multiply = kernels.through_one_slot
    return kernels.around(a, b, multiply, tile_n=256, epilogue=epilogue, epi_tile_n=width)


def no_wait_before_writing(a, b, *, epi_tile_n):
    """Piece 2 overwrites piece 0, which may still be read."""
    return _product(a, b, epi_tile_n, n=None)


def as_many_as_buffers(a, b, *, epi_tile_n):
    """n is what may be left under way: one less than the buffers."""
    return _product(a, b, epi_tile_n, n=2)


def no_commit(a, b, *, epi_tile_n):
    """The TMA unit may not see what was written."""
    return _product(a, b, epi_tile_n, commit=False)


def leaves_without_waiting(a, b, *, epi_tile_n):
    """The block ends while its SMEM is still being read."""
    return _product(a, b, epi_tile_n, last=None)


def one_buffer(a, b, *, epi_tile_n):
    """Always buffer 0, with the wait for two."""
    return _product(a, b, epi_tile_n, buffer=lambda i: 0)


def forgets_the_first_piece(a, b, *, epi_tile_n):
    """Counts pieces from 1."""
    return _product(a, b, epi_tile_n, first=1)


WRONG = {
    "no wait before writing": Wrong(
        no_wait_before_writing, "store-source-overwritten", ("epilogue.py",)
    ),
    "as many as buffers": Wrong(
        as_many_as_buffers, "store-source-overwritten", ("wait_smem_to_gmem", "epilogue.py")
    ),
    "no commit": Wrong(no_commit, "missing-commit-smem", ("commit_smem",)),
    "leaves without waiting": Wrong(
        leaves_without_waiting, "unfinished-copy", ("wait_smem_to_gmem",)
    ),
    "one buffer": Wrong(one_buffer, "store-source-overwritten", ("epilogue.py",)),
    "forgets the first piece": Wrong(forgets_the_first_piece, "nan", ("[0, 0]",)),
}
