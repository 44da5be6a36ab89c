"""Wrong answers to transforms.transposed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.experimental.pallas as pl
import jax.experimental.pallas.mosaic_gpu as plgpu

from tests.wrong_answers import Wrong

WGMMA, TRANSPOSED = plgpu.Layout.WGMMA, plgpu.Layout.WGMMA_TRANSPOSED


def _around(body: Callable[..., None]) -> Callable[[jax.Array], jax.Array]:
    """What the notebook gives, around the learner's lines."""

    def transposed(x: jax.Array) -> jax.Array:
        m, n = x.shape

        def kernel(x_gmem: Any, y_gmem: Any, x_smem: Any, y_smem: Any, loaded: Any) -> None:
            rows = pl.ds(jax.lax.axis_index("mi") * 64, 64)
            columns = pl.ds(jax.lax.axis_index("ni") * 64, 64)
            plgpu.copy_gmem_to_smem(x_gmem.at[rows, columns], x_smem, loaded)
            plgpu.barrier_wait(loaded)
            body(y_gmem, x_smem, y_smem, rows, columns)

        buffer = plgpu.SMEM((64, 64), x.dtype)
        scratch: dict[str, Any] = dict(x_smem=buffer, y_smem=buffer, loaded=plgpu.Barrier())
        launch: dict[str, Any] = dict(grid=(m // 64, n // 64), grid_names=("mi", "ni"))
        out_type = jax.ShapeDtypeStruct((n, m), x.dtype)
        return plgpu.kernel(kernel, out_type=out_type, scratch_types=scratch, **launch)(x)

    return transposed


def _out(y_smem: Any, part_gmem: Any) -> None:
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(y_smem, part_gmem)
    plgpu.wait_smem_to_gmem(0)


@_around
def does_not_mirror_the_place(
    y_gmem: Any, x_smem: Any, y_smem: Any, rows: Any, columns: Any
) -> None:
    block = plgpu.layout_cast(plgpu.load(x_smem, layout=WGMMA), TRANSPOSED)
    y_smem.transpose((1, 0))[...] = block
    _out(y_smem, y_gmem.at[rows, columns])


@_around
def does_not_mirror_the_elements(
    y_gmem: Any, x_smem: Any, y_smem: Any, rows: Any, columns: Any
) -> None:
    y_smem[...] = plgpu.load(x_smem, layout=WGMMA)
    _out(y_smem, y_gmem.at[columns, rows])


@_around
def forgets_the_commit(y_gmem: Any, x_smem: Any, y_smem: Any, rows: Any, columns: Any) -> None:
    block = plgpu.layout_cast(plgpu.load(x_smem, layout=WGMMA), TRANSPOSED)
    y_smem.transpose((1, 0))[...] = block
    plgpu.copy_smem_to_gmem(y_smem, y_gmem.at[columns, rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def transposes_with_the_copy_engine(
    y_gmem: Any, x_smem: Any, y_smem: Any, rows: Any, columns: Any
) -> None:
    plgpu.copy_smem_to_gmem(x_smem.transpose((1, 0)), y_gmem.at[columns, rows])
    plgpu.wait_smem_to_gmem(0)


@_around
def stores_without_the_cast(y_gmem: Any, x_smem: Any, y_smem: Any, rows: Any, columns: Any) -> None:
    y_smem.transpose((1, 0))[...] = x_smem[...]
    _out(y_smem, y_gmem.at[columns, rows])


@_around
def leaves_while_copying(y_gmem: Any, x_smem: Any, y_smem: Any, rows: Any, columns: Any) -> None:
    block = plgpu.layout_cast(plgpu.load(x_smem, layout=WGMMA), TRANSPOSED)
    y_smem.transpose((1, 0))[...] = block
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(y_smem, y_gmem.at[columns, rows])


def transposes_in_jax(x: jax.Array) -> jax.Array:
    return x.T


WRONG = {
    "does not mirror the place": Wrong(does_not_mirror_the_place, "nan", ("rows 64 to 127",)),
    "does not mirror the elements": Wrong(
        does_not_mirror_the_elements, "value", ("bfloat16[64, 128]",)
    ),
    "forgets the commit": Wrong(
        forgets_the_commit, "missing-commit-smem", ("without plgpu.commit_smem()",)
    ),
    "transposes with the copy engine": Wrong(
        transposes_with_the_copy_engine, "layout", ("which axis is the last one",)
    ),
    "stores without the cast": Wrong(
        stores_without_the_cast, "layout", ("plgpu.Layout.WGMMA_TRANSPOSED",)
    ),
    "leaves while copying": Wrong(leaves_while_copying, "race", ("wait_smem_to_gmem(0)",)),
    "transposes in JAX": Wrong(transposes_in_jax, "means", ("no GPU kernel", "`transpose`")),
}
