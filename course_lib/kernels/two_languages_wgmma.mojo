# a @ b on the TensorCore with the parts of Mojo's library: one slot, as step 0 of the ladder.
# It draws its operands, measures, and compares 64 elements. Chapter 22 shows its loop.

from std.random import NormalRandom
from std.time import perf_counter_ns
from max.gpu import global_idx
from std.memory import stack_allocation
from std.utils.index import Index
from max.gpu import barrier, block_idx, thread_idx
from max.gpu.host import DeviceContext
from max.gpu.host.nvidia.tma import TensorMapSwizzle
from max.gpu.memory import AddressSpace
from layout import Coord, Idx, Layout, LayoutTensor, TileTensor, row_major
from layout.tensor_core_async import TensorCoreAsync, tile_layout_k_major, tile_layout_mn_major, warpgroup_fence
from layout.tma_async import SharedMemBarrier, TMATensorTile, create_tensor_tile

comptime SIZE = 4096
comptime BM = 128
comptime BN = 128
comptime BK = 64
comptime half = DType.bfloat16
comptime swizzle = TensorMapSwizzle.SWIZZLE_128B
comptime a_tile = Coord(Idx[BM], Idx[BK])
comptime b_tile = Coord(Idx[BK], Idx[BN])
comptime a_layout = tile_layout_k_major[half, BM, BK, swizzle]()
comptime b_layout = tile_layout_mn_major[half, BN, BK, swizzle]()
comptime acc_layout = Layout.row_major(BM // 64, BN // 2)
comptime Smem[layout: Layout] = LayoutTensor[half, layout, MutAnyOrigin, address_space=AddressSpace.SHARED, alignment=1024]
comptime Acc = LayoutTensor[DType.float32, acc_layout, MutAnyOrigin, address_space=AddressSpace.LOCAL]
comptime TensorCore = TensorCoreAsync[DType.float32, half, half, Index(64, BN, 16), a_swizzle=swizzle, b_swizzle=swizzle]
comptime Halves = MutPointer[BFloat16, MutAnyOrigin]

@__llvm_arg_metadata(x, `nvvm.grid_constant`)
@__llvm_arg_metadata(y, `nvvm.grid_constant`)
def matmul(x: TMATensorTile[half, a_tile], y: TMATensorTile[half, b_tile, Coord(Idx[BK], Idx[64])], z: Halves):
    comptime core = TensorCore()
    var a = Smem[a_layout].stack_allocation()
    var b = Smem[b_layout].stack_allocation()
    var loaded = stack_allocation[1, SharedMemBarrier, address_space=AddressSpace.SHARED, alignment=8]()
    var acc = Acc.stack_allocation()
    _ = acc.fill(0)
    if thread_idx.x == 0:
        loaded[].init()
    barrier()
    for k in range(SIZE // BK):
        if thread_idx.x == 0:
            loaded[].expect_bytes(Int32((BM + BN) * BK * 2))
            x.async_copy(a, loaded[], (k * BK, block_idx.y * BM))
            y.async_copy(b, loaded[], (block_idx.x * BN, k * BK))
        loaded[].wait(UInt32(k % 2))
        warpgroup_fence(acc)
        core.arrive()
        core.wgmma(a, b, acc)
        core.commit_group()
        warpgroup_fence(acc)
        core.wait_group()
        barrier()
    var row = block_idx.y * BM + thread_idx.x // 32 * 16 + thread_idx.x % 32 // 4
    var col = block_idx.x * BN + thread_idx.x % 4 * 2
    comptime for m in range(BM // 64):
        comptime for i in range(BN // 2):
            var place = (row + 64 * m + i // 2 % 2 * 8) * SIZE + col + i // 4 * 8 + i % 2
            z[unsafe_offset=place] = acc[m, i].cast[half]()[0]

def draw(x: Halves, seed: UInt64):
    var random = NormalRandom(seed=seed, subsequence=UInt64(global_idx.x))
    x.unsafe_store[alignment=16](8 * global_idx.x, random.step_normal().cast[half]())

def main() raises:
    var ctx = DeviceContext()
    var x = ctx.enqueue_create_buffer[half](SIZE * SIZE)
    var y = ctx.enqueue_create_buffer[half](SIZE * SIZE)
    var z = ctx.enqueue_create_buffer[half](SIZE * SIZE)
    ctx.enqueue_function[draw](x.unsafe_ptr(), UInt64(perf_counter_ns()), grid_dim=SIZE * SIZE // 2048, block_dim=256)
    ctx.enqueue_function[draw](y.unsafe_ptr(), UInt64(perf_counter_ns()), grid_dim=SIZE * SIZE // 2048, block_dim=256)
    var a = create_tensor_tile[a_tile, swizzle_mode=swizzle](ctx, TileTensor(x, row_major[SIZE, SIZE]()))
    var b = create_tensor_tile[b_tile, swizzle_mode=swizzle](ctx, TileTensor(y, row_major[SIZE, SIZE]()))
    def ours(c: DeviceContext) raises {imm}:
        c.enqueue_function[matmul](a, b, z.unsafe_ptr(), grid_dim=(SIZE // BN, SIZE // BM), block_dim=128)
    for _ in range(10): print("warpgroup", ctx.execution_time(ours, 8) // 8000, "us")
    var wrong = 0
    with x.map_to_host() as xs:
        with y.map_to_host() as ys:
            with z.map_to_host() as zs:
                for i in range(64):
                    var r = i * 61
                    var c = (i * 997) % SIZE
                    var sum: Float32 = 0
                    for k in range(SIZE): sum += xs[r * SIZE + k].cast[DType.float32]() * ys[k * SIZE + c].cast[DType.float32]()
                    wrong += Int(abs(sum - zs[r * SIZE + c].cast[DType.float32]()) > 0.02 + 0.01 * abs(sum))
    print(wrong, "of 64 wrong")
