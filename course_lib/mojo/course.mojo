# What an exercise's harness gets its arrays from, on the CPU and on a GPU.
#
# A file "0_in1.bin" is the second input of the first case, "0_out0.bin" its first output: the
# array's bytes, with GUARD bytes before and behind. Those of an input are NaN; those of an output
# are UNTOUCHED.

from max.gpu.host import DeviceBuffer, DeviceContext
from std.sys import is_defined, size_of

comptime ON_GPU = is_defined["ON_GPU"]()
comptime GUARD = 4096
comptime UNTOUCHED = UInt8(165)

struct Arrays:
    """The arrays of one case."""

    var ctx: DeviceContext
    var stem: String
    var inputs: Int
    var outputs: Int
    var host: List[List[UInt8]]
    var device: List[DeviceBuffer[DType.uint8]]
    var written: List[Int]

    def __init__(out self, folder: String, number: Int) raises:
        comptime if ON_GPU:
            self.ctx = DeviceContext()
        else:
            self.ctx = DeviceContext(api="cpu")
        self.stem = folder + "/" + String(number) + "_"
        self.inputs = 0
        self.outputs = 0
        self.host = List[List[UInt8]]()
        self.device = List[DeviceBuffer[DType.uint8]]()
        self.written = List[Int]()

    def input[dtype: DType](mut self) raises -> MutPointer[Scalar[dtype], MutAnyOrigin]:
        """The next input: where its first element is."""
        with open(self.stem + "in" + String(self.inputs) + ".bin", "r") as file:
            self.host.append(file.read_bytes())
        self.inputs += 1
        return self._placed[dtype]()

    def output[dtype: DType](mut self, count: Int) raises -> MutPointer[Scalar[dtype], MutAnyOrigin]:
        """The next output of `count` elements, not written yet: NaN, or -1."""
        return self._output[dtype](count, 255)

    def zeros[dtype: DType](mut self, count: Int) raises -> MutPointer[Scalar[dtype], MutAnyOrigin]:
        """The next output of `count` elements, all of them 0."""
        return self._output[dtype](count, 0)

    def _output[dtype: DType](
        mut self, count: Int, byte: UInt8
    ) raises -> MutPointer[Scalar[dtype], MutAnyOrigin]:
        var size = count * size_of[Scalar[dtype]]()
        var data = List[UInt8](length=size + 2 * GUARD, fill=UNTOUCHED)
        for i in range(size):
            data[GUARD + i] = byte
        self.written.append(len(self.host))
        self.host.append(data^)
        return self._placed[dtype]()

    def _placed[dtype: DType](mut self) raises -> MutPointer[Scalar[dtype], MutAnyOrigin]:
        var last = len(self.host) - 1
        var start = self.host[last].unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        comptime if ON_GPU:
            var size = len(self.host[last])
            var buffer = self.ctx.enqueue_create_buffer[DType.uint8](size)
            with buffer.map_to_host() as mapped:
                for i in range(size):
                    mapped[i] = self.host[last][i]
            start = buffer.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
            self.device.append(buffer^)
        return start.unsafe_offset(GUARD).unsafe_bitcast[Scalar[dtype]]()

    def finish(mut self) raises:
        """Writes the outputs, with what stands around them now."""
        for number in range(len(self.written)):
            var place = self.written[number]
            comptime if ON_GPU:
                with self.device[place].map_to_host() as mapped:
                    for i in range(len(self.host[place])):
                        self.host[place][i] = mapped[i]
            with open(self.stem + "out" + String(number) + ".bin", "w") as file:
                file.write_bytes(Span(self.host[place]))
