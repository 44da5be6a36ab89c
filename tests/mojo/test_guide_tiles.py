"""The second half of the guide on the locked Mojo: its kernels, its claims, what a GPU printed."""

import functools
import re

import pytest

from course_lib.authoring import Course, read_chapter
from course_lib.authoring.mojo_cells import mojo_cells
from course_lib.layouts import grid
from course_lib.mojo import MojoCompileError, compile_program, compiling, run_program

GUIDE = """\
from std.atomic import Atomic
from std.bit import log2_floor
from std.memory import stack_allocation as raw_allocation
from max.gpu import WARP_SIZE, block_dim, block_idx, lane_id, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.memory import AddressSpace
from max.gpu.primitives import warp
from max.gpu.sync import barrier
from layout import TileTensor, TensorLayout, row_major, stack_allocation

comptime dtype = DType.float32
comptime SIZE = 64
comptime TILE = 16
comptime TPB = 512
comptime layout = row_major[SIZE, SIZE]()
comptime Matrix[L: TensorLayout] = TileTensor[dtype, L, MutAnyOrigin]
comptime Numbers = MutPointer[Int32, MutAnyOrigin]

def tile_of[L: TensorLayout](x: Matrix[L]):
    comptime assert x.flat_rank == 2
    var tile = x.tile[16, 16](block_idx.y, block_idx.x)
    tile[thread_idx.y, thread_idx.x] = tile[thread_idx.y, thread_idx.x] + 1

def rank_not_asserted[L: TensorLayout](x: Matrix[L]):
    comptime assert x.flat_rank == 2
    var vec = x.vectorize[1, 4]()
    vec[thread_idx.y, thread_idx.x] = vec[thread_idx.y, thread_idx.x] * 2

def rank_asserted[L: TensorLayout](x: Matrix[L]):
    comptime assert x.flat_rank == 2
    var vec = x.vectorize[1, 4]()
    comptime assert vec.flat_rank == 2
    vec[thread_idx.y, thread_idx.x] = vec[thread_idx.y, thread_idx.x] * 2

def shuffles[L: TensorLayout](x: Matrix[L]):
    comptime assert x.flat_rank == 2
    var mask: UInt = 0xFFFFFFFF
    var off: UInt32 = 16
    var v = warp.shuffle_xor(mask, Float32(lane_id()), off)
    x[0, lane_id()] = rebind[x.ElementType](v + warp.shuffle_down(v, off))

def zeroed_registers[L: TensorLayout](x: Matrix[L]):
    comptime assert x.flat_rank == 2
    var regs = stack_allocation[dtype](row_major[4, 4]()).fill(0)
    x[0, thread_idx.x] = rebind[x.ElementType](regs[3, 3] + 7)

def zeroed_smem[L: TensorLayout](x: Matrix[L]):
    comptime assert x.flat_rank == 2
    var tile = stack_allocation[dtype, address_space=AddressSpace.SHARED](row_major[4, 4]()).fill(0)
    barrier()
    x[0, thread_idx.x] = rebind[x.ElementType](tile[0, thread_idx.x])

def matmul_kernel[L: TensorLayout](a: Matrix[L], b: Matrix[L], c: Matrix[L]):
    comptime assert a.flat_rank == 2 and b.flat_rank == 2 and c.flat_rank == 2
    var tx = thread_idx.x
    var ty = thread_idx.y
    var row = block_idx.y * TILE + ty
    var col = block_idx.x * TILE + tx
    var sa = stack_allocation[dtype, address_space=AddressSpace.SHARED](row_major[TILE, TILE]())
    var sb = stack_allocation[dtype, address_space=AddressSpace.SHARED](row_major[TILE, TILE]())
    var acc: c.ElementType = 0.0
    comptime for k_tile in range(0, SIZE, TILE):
        sa[ty, tx] = a[row, k_tile + tx]
        sb[ty, tx] = b[k_tile + ty, col]
        barrier()
        comptime for k in range(TILE):
            acc += sa[ty, k] * sb[k, tx]
        barrier()
    c[row, col] = acc

def block_reduce(output: Numbers, input: Numbers):
    var sums = raw_allocation[TPB, Scalar[DType.int32], address_space=AddressSpace.SHARED]()
    var tid = thread_idx.x
    sums[unsafe_offset=tid] = input[unsafe_offset=block_idx.x * block_dim.x + tid]
    barrier()
    var active = TPB
    comptime for _ in range(log2_floor(TPB)):
        active >>= 1
        if tid < active:
            sums[unsafe_offset=tid] += sums[unsafe_offset=tid + active]
        barrier()
    if tid < WARP_SIZE:
        var v = warp.sum(sums[unsafe_offset=tid][0])
        if tid == 0:
            _ = Atomic.fetch_add(output, v)

def main() raises:
    var ctx = DeviceContext()
    comptime L = type_of(layout)
    var a_buffer = ctx.enqueue_create_buffer[dtype](SIZE * SIZE)
    var b_buffer = ctx.enqueue_create_buffer[dtype](SIZE * SIZE)
    var c_buffer = ctx.enqueue_create_buffer[dtype](SIZE * SIZE)
    var a = TileTensor(a_buffer, layout)
    var b = TileTensor(b_buffer, layout)
    var c = TileTensor(c_buffer, layout)
    comptime k0 = tile_of[L]
    ctx.enqueue_function[k0](a, grid_dim=1, block_dim=(16, 16))
    comptime k1 = rank_not_asserted[L]
    ctx.enqueue_function[k1](a, grid_dim=1, block_dim=(16, 16))
    comptime k2 = rank_asserted[L]
    ctx.enqueue_function[k2](a, grid_dim=1, block_dim=(16, 16))
    comptime k3 = shuffles[L]
    ctx.enqueue_function[k3](a, grid_dim=1, block_dim=(16, 16))
    comptime k4 = zeroed_registers[L]
    ctx.enqueue_function[k4](a, grid_dim=1, block_dim=(16, 16))
    comptime k5 = zeroed_smem[L]
    ctx.enqueue_function[k5](a, grid_dim=1, block_dim=(16, 16))
    comptime product = matmul_kernel[L]
    ctx.enqueue_function[product](a, b, c, grid_dim=(4, 4), block_dim=(TILE, TILE))
    var x = ctx.enqueue_create_buffer[DType.int32](TPB)
    var y = ctx.enqueue_create_buffer[DType.int32](1)
    ctx.enqueue_function[block_reduce](y.unsafe_ptr(), x.unsafe_ptr(), grid_dim=1, block_dim=TPB)
"""

ITER_CUSTOM = """\
from std.benchmark import Bench, Bencher, BenchId
from max.gpu.host import DeviceContext

def main() raises:
    var ctx = DeviceContext()

    def bench_nothing(mut b: Bencher) raises {imm}:
        def launch(ctx: DeviceContext) raises {imm}:
            ctx.synchronize()
        b.iter_custom(launch, ctx)

    var bench = Bench()
    bench.bench_function(bench_nothing, BenchId("nothing"))
"""


@functools.cache
def program(cell: str) -> str:
    """The Mojo program of a cell of chapter 21."""
    [source] = (s for s in Course().sources() if s.stem == "21_mojo_tiles")
    [found] = (c for c in mojo_cells(read_chapter(source)) if c.name.endswith(f"/{cell}"))
    return found.source


def printed(cell: str) -> list[list[float]]:
    """The numbers in the lines that a cell's program printed, on this GPU or in its record."""
    output = run_program(program(cell), timeout_s=120)
    assert output is not None, f"{cell} has no record"
    return [[float(n) for n in re.findall(r"-?\d+\.?\d*", ln)] for ln in output.text.splitlines()]


@pytest.mark.parametrize("arch", compiling.ARCHITECTURES)
def test_the_guide_s_kernels_compile_without_spills(arch):
    compiled = compile_program(GUIDE, arch=arch)
    assert {k.name for k in compiled.kernels} == {
        *("tile_of", "rank_not_asserted", "rank_asserted", "shuffles", "zeroed_registers"),
        *("zeroed_smem", "matmul_kernel", "block_reduce"),
    }
    assert compiled.spill_bytes == 0
    assert compiled.kernel("matmul_kernel").count("bar.sync") == 2 * 64 // 16
    ranks = [
        compiled.kernel(f"rank_{name}").count("ld.global") for name in ("asserted", "not_asserted")
    ]
    assert ranks == [1, 1]


def test_fill_sets_registers_and_shared_memory():
    compiled = compile_program(GUIDE)
    assert compiled.kernel("zeroed_smem").count("st.shared") > 0
    assert compiled.kernel("zeroed_registers").count("st.local") == 0


def test_what_the_warp_table_printed_on_a_gpu():
    assert printed("warp-table") == [
        [496, 496, 496, 496],
        [31, 31, 31, 31],
        [0, 0, 0, 0],
        [100, 100, 100, 100],
        [1, 2, 31, 31],
        [1, 0, 31, 30],
        [0, 1, 465, 496],
    ]


def test_a_reduction_by_shuffle_down_leaves_the_result_in_lane_0():
    down, butterfly = printed("reduce")
    assert down == [496, 512, 976, 992]
    assert butterfly == [496] * 4


def test_the_guide_s_reduction_is_wrong_and_the_mended_one_is_right():
    assert printed("guide-sum") == [[3.5 * 512]]
    assert printed("block-sum") == [[4 * 512]]


def test_the_other_programs_printed_what_they_should_on_a_gpu():
    assert printed("reverse") == [[255, 0, 511, 768]]
    assert printed("histogram") == [[0, 1024]]
    assert printed("load") == [[100, 100]]
    assert printed("copy-part") == [[36, 4095]]
    assert printed("async-tile") == [[31, 0, 480]]
    assert printed("vector-loads") == [[4, 4]]
    assert printed("view") == [[1, -1, -1, 1]]
    assert printed("ordering") == [[20_000]]


def test_a_vector_per_lane_copies_as_fast_as_the_device():
    """1 GiB, normal random numbers; medians of ratios taken in one run, see the program."""
    ratios, wrong = printed("copies")
    assert len(ratios) == 4
    assert ratios[2] >= 0.95
    assert ratios[0] < ratios[2]
    assert wrong == [0]


def test_bench_reported_a_throughput_on_a_gpu():
    output = run_program(program("bench"), timeout_s=120)
    assert output is not None
    assert "GB/s" in output.text
    [row] = (line for line in output.text.splitlines() if line.startswith("| double"))
    assert float(row.split("|")[4]) > 100


def test_the_method_iter_custom_refuses_a_device_context():
    with pytest.raises(MojoCompileError, match="iter_custom"):
        compile_program(ITER_CUSTOM)


def test_a_tensor_passed_twice_is_refused_and_explained():
    with pytest.raises(MojoCompileError, match="passed twice") as caught:
        compile_program(program("same-twice"))
    assert caught.value.entry == "mojo-aliasing"


def test_a_block_gets_one_kilobyte_less_than_the_sm_has():
    """CUDA Programming Guide, technical specifications of compute capability 9.0 and 10.0."""
    assert (grid.SM_SMEM_BYTES, grid.BLOCK_SMEM_BYTES) == (228 * 1024, 227 * 1024)
