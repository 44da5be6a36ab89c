"""The model of a GPU that PTX runs on: values, and what it finds wrong."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.grading import ptx_machine, ptx_text
from course_lib.grading.ptx_machine import Endless, Ran
from course_lib.grading.ptx_text import Unknown
from course_lib.grading.ptx_values import TYPES, computing, constant

HEAD = """
.version 8.5
.target sm_90a
.address_size 64
.visible .entry kernel(
  .param .u64 .ptr .align 1 kernel_param_0,
  .param .u64 .ptr .align 1 kernel_param_1,
  .param .b32 kernel_param_2
)
{
  .reg .pred %p<8>;
  .reg .b16 %rs<8>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<32>;
  .shared .align 4 .b8 item[512];
  ld.param::entry.b64 %rd1, [kernel_param_0];
  ld.param::entry.b64 %rd2, [kernel_param_1];
  ld.param::entry.b32 %r1, [kernel_param_2];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mad.lo.s32 %r5, %r3, %r4, %r2;   // the lane's number in the launch
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  mov.b32 %r6, item;
  shl.b32 %r7, %r2, 2;
  add.s32 %r8, %r6, %r7;           // the lane's place in shared memory
"""
RNG = np.random.default_rng()


def launch(body: str, *, blocks: int = 2, lanes: int = 64, number: int = 0, seed: int = 0) -> Ran:
    """Runs a body; the first buffer holds int32 of the launch, the second is to be written."""
    kernel = ptx_text.read(f"{HEAD}{body}\n  ret;\n}}\n")
    count = blocks * lanes
    x = RNG.integers(-1000, 1000, count).astype(np.int32)
    arguments = [x, np.full(count, -1, np.int32), number]
    return ptx_machine.run(
        kernel, arguments, grid=(blocks, 1, 1), block=(lanes, 1, 1), seed=seed, most_steps=20_000
    )


def kinds(ran: Ran) -> set[str]:
    return {f.kind for f in ran.faults}


def test_lanes_read_and_write_their_elements():
    x, y = (ran := launch("ld.global.b32 %r9, [%rd4]; st.global.b32 [%rd5], %r9;")).buffers
    np.testing.assert_array_equal(x, y)
    assert ran.faults == ()


def test_lanes_that_part_meet_again():
    ran = launch("""
      ld.global.b32 %r9, [%rd4];
      setp.lt.s32 %p1, %r9, 0;
      @%p1 bra $L_negative;
      add.s32 %r9, %r9, 5;
      bra.uni $L_end;
    $L_negative:
      neg.s32 %r9, %r9;
    $L_end:
      shfl.sync.bfly.b32 %r10, %r9, 1, 31, -1;
      st.global.b32 [%rd5], %r10;
    """)
    x, y = ran.buffers
    there = np.where(x < 0, -x, x + 5)
    np.testing.assert_array_equal(y, there.reshape(-1, 2)[:, ::-1].reshape(-1))
    assert ran.faults == ()


def test_a_loop_takes_each_lane_as_long_as_it_needs():
    _, y = launch("""
      mov.b32 %r9, 0;
      mov.b32 %r10, 0;
    $L_loop:
      add.s32 %r9, %r9, %r10;
      add.s32 %r10, %r10, 1;
      setp.le.u32 %p1, %r10, %r2;
      @%p1 bra $L_loop;
      st.global.b32 [%rd5], %r9;
    """).buffers
    lane = np.arange(64)
    np.testing.assert_array_equal(y, np.tile(lane * (lane + 1) // 2, 2))


REVERSE = """
  ld.global.b32 %r9, [%rd4];
  st.shared.b32 [%r8], %r9;
  {barrier}
  sub.s32 %r10, 63, %r2;
  shl.b32 %r11, %r10, 2;
  add.s32 %r12, %r6, %r11;
  ld.shared.b32 %r13, [%r12];
  st.global.b32 [%rd5], %r13;
"""


def test_a_barrier_orders_what_lanes_do_and_without_it_it_is_a_race():
    good = launch(REVERSE.format(barrier="bar.sync 0;"))
    x, y = good.buffers
    np.testing.assert_array_equal(y, x.reshape(2, 64)[:, ::-1].reshape(-1))
    assert good.faults == ()
    bad = launch(REVERSE.format(barrier=""))
    assert kinds(bad) == {"race"}
    assert "shared memory" in bad.faults[0].what


def test_a_warps_own_barrier_orders_its_lanes_and_not_those_of_others():
    near = REVERSE.replace("sub.s32 %r10, 63, %r2", "xor.b32 %r10, %r2, 1")
    assert kinds(launch(near.format(barrier="bar.warp.sync -1;"))) == set()
    assert kinds(launch(near.format(barrier=""))) == {"race"}
    assert kinds(launch(REVERSE.format(barrier="bar.warp.sync -1;"))) == {"race"}


ADD = """
  setp.ne.s32 %p1, %r2, 0;
  @!%p1 st.shared.b32 [%r6], 0;
  bar.sync 0;
  {add}
  bar.sync 0;
  ld.shared.b32 %r9, [%r6];
  st.global.b32 [%rd5], %r9;
"""


def test_atomic_additions_are_all_there_and_plain_ones_get_lost():
    good = launch(ADD.format(add="atom.shared.add.u32 %r10, [%r6], %r2;"))
    np.testing.assert_array_equal(good.buffers[1], np.arange(64).sum())
    assert good.faults == ()
    plain = "ld.shared.b32 %r10, [%r6]; add.s32 %r10, %r10, %r2; st.shared.b32 [%r6], %r10;"
    bad = launch(ADD.format(add=plain))
    assert kinds(bad) == {"race"}
    assert (bad.buffers[1] != np.arange(64).sum()).all()


def test_blocks_race_in_global_memory_unless_they_add_atomically():
    assert kinds(launch("st.global.b32 [%rd2], %r5;", lanes=1, blocks=4)) == {"race"}
    assert kinds(launch("st.global.b32 [%rd2], 7;", lanes=64)) == set()  # all write the same
    good = launch("red.global.add.u32 [%rd2], %r5;", lanes=32)
    assert good.faults == ()
    assert good.buffers[1][0] == np.arange(64).sum() - 1


@pytest.mark.parametrize("seed", range(4))
def test_warps_have_no_order(seed):
    """The last warp to come writes: which one it is, is drawn."""
    ran = launch("ld.shared.b32 %r9, [%r6]; st.shared.b32 [%r6], %r2; st.global.b32 [%rd5], %r9;",
                 blocks=1, lanes=512, seed=seed)  # fmt: skip
    assert kinds(ran) == {"race"}
    assert (ran.buffers[1] == -1).sum() == 32


def test_what_is_beyond_an_array_is_not_read_and_not_written():
    ran = launch("ld.global.b32 %r9, [%rd4+4]; st.global.b32 [%rd5], %r9;")
    assert kinds(ran) == {"out-of-bounds"}
    assert "reads global memory" in ran.faults[0].what
    x, y = ran.buffers
    np.testing.assert_array_equal(y, [*x[1:], -1])
    ran = launch("st.global.b32 [%rd4+-4], %r5;")
    assert "writes to global memory" in ran.faults[0].what
    np.testing.assert_array_equal(ran.buffers[0][:-1], np.arange(1, 128))
    assert kinds(launch("st.shared.b32 [%r8+512], %r5;")) == {"out-of-bounds"}
    assert kinds(launch("st.shared.b32 [%r8+256], %r5;")) == set()


def test_generic_addresses_find_their_memory():
    ran = launch("""
      .local .align 4 .b8 depot[8];
      ld.global.b32 %r9, [%rd4];
      mov.b64 %rd6, depot;
      cvta.local.u64 %rd6, %rd6;
      st.b32 [%rd6+4], %r9;
      cvt.u64.u32 %rd7, %r8;
      cvta.shared.u64 %rd7, %rd7;
      ld.b32 %r10, [%rd6+4];
      st.b32 [%rd7], %r10;
      setp.gt.u32 %p1, %r2, 31;
      @%p1 ld.b32 %r11, [%rd7];
      @!%p1 ld.b32 %r11, [%rd4];
      st.b32 [%rd5], %r11;
    """)
    np.testing.assert_array_equal(*ran.buffers)
    assert ran.faults == ()


def test_vectors_and_parts_of_registers():
    ran = launch("""
      setp.gt.u32 %p1, %r5, 31;
      @%p1 ret;
      mul.wide.u32 %rd6, %r5, 12;
      add.s64 %rd7, %rd4, %rd6;
      add.s64 %rd8, %rd5, %rd6;
      ld.global.v4.b32 {%r9, %r10, %r11, %r12}, [%rd7];
      mov.b64 %rd9, {%r9, %r10};
      mov.b64 {%r13, %r14}, %rd9;
      st.global.v2.b32 [%rd8], {%r14, %r13};
      st.global.v2.b32 [%rd8+8], {%r11, %r12};
    """)
    x, y = (b.reshape(32, 4) for b in ran.buffers)
    np.testing.assert_array_equal(y, x[:, [1, 0, 2, 3]])
    assert ran.faults == ()


def test_votes_and_sums_of_a_warp():
    ran = launch("""
      ld.global.b32 %r9, [%rd4];
      setp.lt.s32 %p1, %r9, 0;
      vote.sync.ballot.b32 %r10, %p1, -1;
      popc.b32 %r11, %r10;
      redux.sync.add.s32 %r12, %r9, -1;
      add.s32 %r13, %r11, %r12;
      st.global.b32 [%rd5], %r13;
    """)
    x, y = (b.reshape(-1, 32) for b in ran.buffers)
    wanted = (x < 0).sum(axis=1) + x.sum(axis=1)
    np.testing.assert_array_equal(y, np.repeat(wanted[:, None], 32, axis=1))


def test_an_address_that_is_not_aligned_crashes():
    assert kinds(launch("ld.shared.b32 %r9, [%r8+2];")) == {"crash"}


def test_lanes_that_miss_a_barrier():
    """Who has ended need not come; who waits somewhere else does not count as there."""
    ended = "setp.gt.u32 %p1, %r2, 31; @%p1 ret; bar.sync 0; st.global.b32 [%rd5], 1;"
    ran = launch(ended)
    assert ran.faults == ()
    assert (ran.buffers[1].reshape(2, 64)[:, :32] == 1).all()
    apart = """
      setp.gt.u32 %p1, %r2, 15;
      @%p1 bra $L_other;
      bar.sync 0;
      bra.uni $L_end;
    $L_other:
      bar.sync 0;
    $L_end:
      st.global.b32 [%rd5], 1;
    """
    assert kinds(launch(apart)) == {"barrier"}


def test_a_shuffle_that_not_all_come_to():
    ran = launch("setp.gt.u32 %p1, %r2, 15; @%p1 ret; shfl.sync.idx.b32 %r9, %r2, 20, 31, -1;")
    assert kinds(ran) == {"barrier"}


def test_what_never_ends_is_stopped():
    with pytest.raises(Endless):
        launch("$L_loop: bra.uni $L_loop;")


def test_instructions_can_be_made_to_do_nothing():
    kernel = ptx_text.read(f"{HEAD} ld.global.b32 %r9, [%rd4]; st.global.b32 [%rd5], %r9; ret; }}")
    x = RNG.integers(1, 1000, 32).astype(np.int32)
    ran = ptx_machine.run(
        kernel, [x, np.zeros_like(x), 0], grid=(1, 1, 1), block=(32, 1, 1), seed=0,
        idle=lambda opcode: opcode.startswith("ld.global"),
    )  # fmt: skip
    assert not ran.buffers[1].any()


def test_only_what_some_lane_does_is_used():
    ran = launch("setp.gt.u32 %p1, %r2, 99; @%p1 bra $L_never; ret; $L_never: add.s32 %r9, %r9, 1;")
    count = len(ptx_text.read(f"{HEAD} ret; }}").instructions)
    assert ran.used == frozenset(range(count + 2)) - {count}  # no lane takes the branch


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("wgmma.fence.sync.aligned;", "the instruction `wgmma.fence.sync.aligned`"),
        ("bar.sync 1, 32;", "the instruction `bar.sync`"),
        ("add.cc.s32 %r9, %r2, %r2;", "the instruction `add.cc.s32`"),
        ("mov.u32 %r9, %clock;", "the operand `%clock`"),
        ("add.s32 %r9, %r2, %r99;", "the operand `%r99`"),
        ("bra $L_nowhere;", "the label `$L_nowhere`"),
        ("add.s32 %rs1, %r2, %r2;", "with a type that is wider than it"),
    ],
)
def test_what_the_model_has_not_is_nobodys_fault(body, says):
    with pytest.raises(Unknown) as error:
        launch(body)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "without its one kernel"),
        (f"{HEAD} ret; }}\n{HEAD} ret; }}", "without its one kernel"),
        (f".func helper() {{ ret; }}\n{HEAD} ret; }}", "Beside the kernel stands `.func helper`"),
        (f".extern .func vprintf;\n{HEAD} ret; }}", "It prints from its kernel"),
        (f"{HEAD} ret;", "has no end"),
        (f"{HEAD} .shared .align 4 .b8 large[999999]; ret; }}", "More shared memory"),
        (f"{HEAD} .reg .b32 %q<99999999>; ret; }}", "More registers"),
        (f"{HEAD} .reg .b32 %rd1; ret; }}", "with two types"),
        (f"{HEAD} $L: ret; $L: ret; }}", "there twice"),
        (f"{HEAD} ADD R1; }}", "no instruction that the grader knows"),
        ("x" * (1 << 21), "longer than any"),
    ],
)
def test_what_is_no_kernel_is_refused(text, says):
    with pytest.raises(ptx_text.Refused, match=says):
        ptx_text.read(text)


def test_too_many_instructions_are_refused():
    with pytest.raises(ptx_text.Refused, match="More instructions"):
        ptx_text.read(HEAD + "add.s32 %r9, %r9, 1;\n" * 21_000 + "ret; }")


# --- arithmetic ----------------------------------------------------------------------------------


def _numbers(kind: str) -> np.ndarray:
    dtype = TYPES[kind]
    if dtype.kind == "f":
        return RNG.standard_normal(200).astype(dtype)
    info = np.iinfo(dtype)
    few = [info.min, info.min + 1, -1 if info.min else 1, 0, 1, 2, 7, info.max - 1, info.max]
    many = RNG.integers(info.min, info.max, 191, dtype=dtype, endpoint=True)
    return RNG.permutation(np.array([*few, *many], dtype))


def _wrapped(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def _toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS = {
    "add.{}": lambda a, b, bits: a + b,
    "sub.{}": lambda a, b, bits: a - b,
    "mul.lo.{}": lambda a, b, bits: a * b,
    "mul.hi.{}": lambda a, b, bits: a * b >> bits,
    "min.{}": lambda a, b, bits: min(a, b),
    "max.{}": lambda a, b, bits: max(a, b),
    "div.{}": lambda a, b, bits: _toward_zero(a, b),
    "rem.{}": lambda a, b, bits: a - b * _toward_zero(a, b),
}


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_computed_as_python_does_and_wrapped(name, kind):
    known = computing(name.format(kind))
    a, b = _numbers(kind), _numbers(kind)
    if name[:3] in ("div", "rem"):
        b = np.where(b == 0, b.dtype.type(3), b)
    with np.errstate(all="ignore"):
        found = known.compute(a, b)
    bits = int(kind[1:])
    wanted = [
        _wrapped(INTEGERS[name](int(p), int(q), bits), kind) for p, q in zip(a, b, strict=True)
    ]
    assert found.dtype == TYPES[kind]
    np.testing.assert_array_equal(found, np.array(wanted, TYPES[kind]))


@pytest.mark.parametrize("kind", ["b32", "b64", "s32", "u64", "s16"])
def test_shifts_by_more_than_there_are_bits_leave_the_sign(kind):
    bits = int(kind[1:])
    a = _numbers(kind.replace("b", "u"))
    by = RNG.integers(0, 2 * bits, a.size).astype(np.uint32)
    right = computing(f"shr.{kind}").compute(a, by)
    np.testing.assert_array_equal(right, [int(p) >> int(n) for p, n in zip(a, by, strict=True)])
    if kind[0] == "b":
        left = computing(f"shl.{kind}").compute(a, by)
        wanted = [int(p) << int(n) & (1 << bits) - 1 for p, n in zip(a, by, strict=True)]
        np.testing.assert_array_equal(left, np.array(wanted, left.dtype))


def test_bits_are_counted_turned_and_taken_out():
    a = _numbers("u32")
    text = [f"{int(v):032b}" for v in a]
    np.testing.assert_array_equal(computing("popc.b32").compute(a), [t.count("1") for t in text])
    leading = [32 - len(t.lstrip("0")) for t in text]
    np.testing.assert_array_equal(computing("clz.b32").compute(a), leading)
    np.testing.assert_array_equal(computing("brev.b32").compute(a), [int(t[::-1], 2) for t in text])
    begin, count = (np.full(a.size, n, np.uint32) for n in (5, 9))
    field = computing("bfe.u32").compute(a, begin, count)
    np.testing.assert_array_equal(field, a >> 5 & 511)
    signed = computing("bfe.s32").compute(a.view(np.int32), begin, count)
    np.testing.assert_array_equal(signed, (a << 18).view(np.int32) >> 23)
    put = computing("bfi.b32").compute(a, np.zeros_like(a), begin, count)
    np.testing.assert_array_equal(put, (a & 511) << 5)
    b = _numbers("u32")
    swapped = computing("prmt.b32").compute(a, b, np.full(a.size, 0x5410, np.uint32))
    np.testing.assert_array_equal(swapped, a & 0xFFFF | b << 16)
    both = computing("lop3.b32").compute(a, b, b, np.full(a.size, 0xC0, np.uint32))
    np.testing.assert_array_equal(both, a & b)
    funnel = computing("shf.l.wrap.b32").compute(a, b, np.full(a.size, 8, np.uint32))
    np.testing.assert_array_equal(funnel, b << 8 | a >> 24)


def test_comparisons_of_numbers_that_are_none():
    a = np.array([1, np.nan, 2], np.float32)
    b = np.array([np.nan, 1, 2], np.float32)
    for name, wanted in {
        "eq": [0, 0, 1], "equ": [1, 1, 1], "lt": [0, 0, 0], "geu": [1, 1, 1], "ne": [0, 0, 0],
        "num": [0, 0, 1], "nan": [1, 1, 0],
    }.items():  # fmt: skip
        np.testing.assert_array_equal(computing(f"setp.{name}.f32").compute(a, b), wanted)
    np.testing.assert_array_equal(computing("min.f32").compute(a, b), [1, 1, 2])
    joined = computing("setp.eq.and.s32")
    assert joined.operands == ("s32", "s32", "pred")


def test_conversions_clamp_round_and_widen():
    a = np.array([1.5, -2.5, 3e10, -3e10, np.nan], np.float32)
    whole = computing("cvt.rzi.s32.f32").compute(a)
    np.testing.assert_array_equal(whole, [1, -2, 2**31 - 1, -(2**31), 0])
    np.testing.assert_array_equal(computing("cvt.rni.s32.f32").compute(a)[:2], [2, -2])
    np.testing.assert_array_equal(computing("cvt.rzi.u32.f32").compute(a)[1:4], [0, 2**32 - 1, 0])
    b = np.array([-1, 5], np.int16)
    assert computing("cvt.s64.s16").compute(b).tolist() == [-1, 5]
    assert computing("cvt.f32.f16").result == "f32"
    assert computing("cvt.s32.f32") is None  # PTX asks for a way to round


def test_a_product_and_a_sum_are_rounded_once():
    a, b = np.float32(1 + 2**-12), np.float32(1 - 2**-12)
    found = computing("fma.rn.f32").compute(*(np.array(v) for v in (a, b, np.float32(-1))))
    assert found == np.float32(-(2.0**-24))


@pytest.mark.parametrize(
    "opcode",
    ["add.rz.f32", "mul.s32", "mad.wide.s64", "add.sat.s32", "mov.b128", "cvt.sat.f32.f32"],
)
def test_what_is_computed_otherwise_is_not_guessed(opcode):
    assert computing(opcode) is None


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("0f3F800000", "f32", 1.0), ("0f3F800000", "b32", 0x3F800000), ("-1", "u32", 2**32 - 1),
        ("0x10", "s64", 16), ("010", "s32", 8), ("1.5", "f32", 1.5),
        ("0d4000000000000000", "f64", 2),
        ("-4294967296", "b64", 2**64 - 2**32), ("1", "pred", True),
    ],
)  # fmt: skip
def test_constants(text, kind, value):
    assert constant(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"), [("1", "f32"), ("x", "s32"), ("1e5", "s32"), ("", "b32")]
)
def test_what_is_no_constant(text, kind):
    assert constant(text, kind) is None
