"""Programs for the statements of the Mojo guide that chapter 20 is about."""

WORKS = """\
from std.math import ceildiv
from std.sys import has_accelerator
from std.atomic import Atomic
from max.gpu import global_idx
from max.gpu import block_dim, block_idx, thread_idx
from max.gpu import lane_id, WARP_SIZE
from max.gpu.sync import barrier
from max.gpu.primitives import warp
from max.gpu.memory import AddressSpace
from max.gpu.memory import async_copy_wait_all
from max.gpu.host import DeviceContext, DeviceBuffer
from layout import TileTensor, TensorLayout, Idx, row_major, stack_allocation

comptime dtype = DType.float32
comptime SIZE = 1024
comptime BLOCK_SIZE = 256
comptime NUM_BLOCKS = ceildiv(SIZE, BLOCK_SIZE)
comptime layout = row_major[SIZE]()
comptime layout_2d = row_major[64, 64]()
comptime layout_3d = row_major[10, 5, 3]()

def parametric[LT: TensorLayout](
    input: TileTensor[dtype, LT, MutAnyOrigin],
    output: TileTensor[dtype, LT, MutAnyOrigin],
    size: Int32,
):
    comptime assert input.flat_rank == 1, "expected 1D tensor"
    var tid = global_idx.x
    if tid < Int(size):
        output[tid] = input[tid] * 2

def monomorphic(x: TileTensor[dtype, type_of(layout), MutAnyOrigin]):
    x[block_idx.x * block_dim.x + thread_idx.x] = 1

def two_dimensions(x: TileTensor[dtype, type_of(layout_2d), MutAnyOrigin]):
    var row = global_idx.y
    var col = global_idx.x
    if row < Int(x.dim[0]()) and col < Int(x.dim[1]()):
        x[row, col] = 1

def three_dimensions(x: TileTensor[dtype, type_of(layout_3d), MutAnyOrigin]):
    x[thread_idx.x, thread_idx.y, thread_idx.z] = x[0, 0, 0].cast[dtype]()

def lanes(x: TileTensor[dtype, type_of(layout), MutAnyOrigin]):
    x[thread_idx.x] = Scalar[dtype](lane_id() + WARP_SIZE)

def rebinding[LA: TensorLayout, LB: TensorLayout](
    a: TileTensor[dtype, LA, MutAnyOrigin],
    b: TileTensor[dtype, LB, MutAnyOrigin],
):
    var sum: Scalar[dtype] = 0
    var a_val = rebind[Scalar[dtype]](a[0])
    var b_val = rebind[Scalar[dtype]](b[1])
    sum += a_val * b_val
    b[0] = rebind[b.ElementType](sum)

def same_layout(x: TileTensor[dtype, type_of(layout), MutAnyOrigin]):
    var acc: x.ElementType = 0.0
    acc += x[0] * x[1]
    x[2] = acc

def main() raises:
    comptime assert has_accelerator(), "Requires a GPU"
    var ctx = DeviceContext()
    var dev_buf = ctx.enqueue_create_buffer[dtype](64 * 64)
    var host_buf = ctx.enqueue_create_host_buffer[dtype](64 * 64)
    dev_buf.enqueue_fill(0.0)
    ctx.enqueue_copy(dst_buf=dev_buf, src_buf=host_buf)
    ctx.enqueue_copy(dst_buf=host_buf, src_buf=dev_buf)
    ctx.enqueue_copy(dev_buf, host_buf)
    with dev_buf.map_to_host() as mapped:
        var t = TileTensor(mapped, row_major[1024]())
        print(t[0])
    ctx.enqueue_memset(dev_buf, 0.0)
    var other = ctx.enqueue_create_buffer[dtype](SIZE)
    var x = TileTensor(dev_buf, layout)
    var y = TileTensor(other, layout)
    var m = TileTensor(dev_buf, layout_2d)
    comptime kernel = parametric[type_of(layout)]
    ctx.enqueue_function[kernel](x, y, Int32(SIZE), grid_dim=NUM_BLOCKS, block_dim=BLOCK_SIZE)
    ctx.enqueue_function[monomorphic](x, grid_dim=NUM_BLOCKS, block_dim=BLOCK_SIZE)
    ctx.enqueue_function[two_dimensions](m, grid_dim=(4, 4), block_dim=(16, 16))
    ctx.enqueue_function[three_dimensions](
        TileTensor(dev_buf, layout_3d), grid_dim=1, block_dim=(10, 5, 3)
    )
    ctx.enqueue_function[lanes](x, grid_dim=1, block_dim=64)
    comptime rebound = rebinding[type_of(layout_2d), type_of(layout)]
    ctx.enqueue_function[rebound](m, y, grid_dim=1, block_dim=1)
    ctx.enqueue_function[same_layout](x, grid_dim=1, block_dim=1)
    ctx.synchronize()
"""

TARGETS = """\
from std.sys.info import is_gpu, is_nvidia_gpu, is_amd_gpu, is_apple_gpu
from std.sys.info import _is_sm_9x_or_newer, _is_sm_100x_or_newer
from max.gpu import global_idx
from max.gpu.host import DeviceContext
from layout import TileTensor, row_major

comptime layout = row_major[32]()

def answers(x: TileTensor[DType.int32, type_of(layout), MutAnyOrigin]):
    var sum: Int32 = 0
    comptime if is_gpu():
        sum += 1
    comptime if is_nvidia_gpu():
        sum += 2
    elif is_amd_gpu():
        sum += 4
    elif is_apple_gpu():
        sum += 8
    comptime if is_nvidia_gpu["sm_90"]():
        sum += 16
    comptime if is_nvidia_gpu["sm_90a"]():
        sum += 32
    comptime if _is_sm_9x_or_newer():
        sum += 64
    comptime if _is_sm_100x_or_newer():
        sum += 128
    x[global_idx.x] = sum

def main() raises:
    var ctx = DeviceContext()
    var buffer = ctx.enqueue_create_buffer[DType.int32](32)
    ctx.enqueue_function[answers](TileTensor(buffer, layout), grid_dim=1, block_dim=32)
"""

ON_CPU = """\
from std.sys.info import is_gpu, is_nvidia_gpu
from layout import TileTensor, TensorLayout, row_major

def third[LT: TensorLayout](t: TileTensor[DType.float32, LT, MutAnyOrigin]) -> Float32:
    return rebind[Scalar[DType.float32]](t[1, 0])

def product[LA: TensorLayout, LB: TensorLayout](
    a: TileTensor[DType.float32, LA, MutAnyOrigin],
    b: TileTensor[DType.float32, LB, MutAnyOrigin],
) -> Float32:
    var sum: Scalar[DType.float32] = 0
    sum += a[1] * b[1, 1]
    return sum

def main() raises:
    var data = List[Float32](length=6, fill=0)
    for i in range(6):
        data[i] = Float32(i)
    var t = TileTensor(data.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](), row_major[3, 2]())
    var u = TileTensor(data.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](), row_major[6]())
    var m = 3
    print(t[1, 0], t[2, 1].cast[DType.int32](), Int(t.dim[0]()), row_major(m, 2), row_major[3, 2]())
    print(third(t), product(u, t), is_gpu(), is_nvidia_gpu())
"""

RUNTIME_IDX = """\
from layout import Idx, row_major

def main() raises:
    var m = 3
    print(row_major(Idx(m), Idx(m)))
"""

HAS_NVIDIA = """\
from std.sys.info import has_nvidia_gpu_accelerator

def main():
    print(has_nvidia_gpu_accelerator())
"""

ARCHITECTURE = """\
from std.sys import has_accelerator
from std.sys.info import _accelerator_arch

def main():
    comptime if not has_accelerator():
        print("No GPU found")
    else:
        print(_accelerator_arch())
"""

WRONG_RAISES = """\
from max.gpu import global_idx
from max.gpu.host import DeviceContext
from layout import TileTensor, row_major

comptime layout = row_major[32]()

def careful(x: TileTensor[DType.int32, type_of(layout), MutAnyOrigin]) raises:
    if global_idx.x > 31:
        raise Error("too far")
    x[global_idx.x] = 1

def main() raises:
    var ctx = DeviceContext()
    var buffer = ctx.enqueue_create_buffer[DType.int32](32)
    ctx.enqueue_function[careful](TileTensor(buffer, layout), grid_dim=1, block_dim=32)
"""
QUIET = WRONG_RAISES.replace(" raises:\n    if", ":\n    if").replace(
    '        raise Error("too far")', "        return"
)
