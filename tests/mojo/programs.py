"""Mojo programs for the tests, right ones and wrong ones."""

VECTOR_ADD = """\
from std.math import ceildiv
from std.sys import has_accelerator
from max.gpu import global_idx
from max.gpu.host import DeviceContext
from layout import TileTensor, row_major

comptime dtype = DType.float32
comptime N = 1000
comptime BLOCK = 256
comptime layout = row_major[N]()

def add_kernel(
    a: TileTensor[dtype, type_of(layout), MutAnyOrigin],
    b: TileTensor[dtype, type_of(layout), MutAnyOrigin],
    c: TileTensor[dtype, type_of(layout), MutAnyOrigin],
    size: Int32,
):
    var tid = global_idx.x
    if tid < Int(size):
        c[tid] = a[tid] + b[tid]

def main() raises:
    comptime assert has_accelerator(), "Requires a GPU"
    var ctx = DeviceContext()
    var a_buf = ctx.enqueue_create_buffer[dtype](N)
    var b_buf = ctx.enqueue_create_buffer[dtype](N)
    var c_buf = ctx.enqueue_create_buffer[dtype](N)
    a_buf.enqueue_fill(1.0)
    b_buf.enqueue_fill(2.0)
    var a = TileTensor(a_buf, layout)
    var b = TileTensor(b_buf, layout)
    var c = TileTensor(c_buf, layout)
    ctx.enqueue_function[add_kernel](
        a, b, c, Int32(N), grid_dim=ceildiv(N, BLOCK), block_dim=BLOCK
    )
    with c_buf.map_to_host() as host:
        print(host[0], host[N - 1])
"""

INT_ARGUMENT = VECTOR_ADD.replace("Int32", "Int").replace("Int(size)", "size")

UNBOUND = """\
from max.gpu import global_idx
from max.gpu.host import DeviceContext
from layout import TileTensor, TensorLayout, row_major

def fill[LT: TensorLayout](a: TileTensor[DType.float32, LT, MutAnyOrigin]):
    comptime assert a.flat_rank == 1
    a[global_idx.x] = 1

def main() raises:
    var ctx = DeviceContext()
    var buffer = ctx.enqueue_create_buffer[DType.float32](1024)
    var a = TileTensor(buffer, row_major[1024]())
    ctx.enqueue_function[fill](a, grid_dim=4, block_dim=256)
"""

BOUND = UNBOUND.replace(
    "    ctx.enqueue_function[fill]",
    "    comptime kernel = fill[type_of(row_major[1024]())]\n    ctx.enqueue_function[kernel]",
)

INT_OFFSET = """\
from max.gpu import thread_idx
from max.gpu.primitives import warp
from max.gpu.host import DeviceContext
from layout import TileTensor, row_major

comptime layout = row_major[32]()

def swap_halves(a: TileTensor[DType.float32, type_of(layout), MutAnyOrigin]):
    var offset = 16
    a[thread_idx.x] = warp.shuffle_xor(a[thread_idx.x], offset)

def main() raises:
    var ctx = DeviceContext()
    var buffer = ctx.enqueue_create_buffer[DType.float32](32)
    var a = TileTensor(buffer, layout)
    ctx.enqueue_function[swap_halves](a, grid_dim=1, block_dim=32)
"""

UINT32_OFFSET = INT_OFFSET.replace("var offset = 16", "var offset: UInt32 = 16")

NO_RANK = """\
from max.gpu import thread_idx
from max.gpu.host import DeviceContext
from layout import TileTensor, TensorLayout, row_major

comptime layout = row_major[8, 8]()

def fill[LT: TensorLayout](a: TileTensor[DType.float32, LT, MutAnyOrigin]):
    a[thread_idx.y, thread_idx.x] = 1

def main() raises:
    var ctx = DeviceContext()
    var buffer = ctx.enqueue_create_buffer[DType.float32](64)
    var a = TileTensor(buffer, layout)
    comptime kernel = fill[type_of(layout)]
    ctx.enqueue_function[kernel](a, grid_dim=1, block_dim=(8, 8))
"""

WITH_RANK = NO_RANK.replace(
    "MutAnyOrigin]):\n    a[", "MutAnyOrigin]):\n    comptime assert a.flat_rank == 2\n    a["
)
