"""PTX and SASS are cut into instructions, each with its line and its kind."""

import textwrap

import pytest

from course_lib.compiler.listing import kind_of, matches, parse_ptx, parse_sass, with_titles
from course_lib.diagnostics import locate, register_cell

pytestmark = pytest.mark.two_jax

PTX = textwrap.dedent("""\
    .version 9.5
    .target sm_90a
    // .globl    kernel
    .visible .entry kernel(
        .param .u64 kernel_param_0
    )
    .maxntid 128, 1, 1
    {
        .reg .pred     %p<4>;
        .reg .b32     %r<9>;
    $L__func_begin0:
        .loc    1 14 0
        ld.param::entry.b64     %rd4, [kernel_param_0];
        .loc    1 15 8
        // begin inline asm
        @%p1 mbarrier.init.shared::cta.b64 [%r2], %r1;

        // end inline asm
        {
        .reg .pred P1;
        LAB_WAIT:
        mbarrier.try_wait.parity.shared.b64 P1, [%r1], %r2, %r3;
        @P1 bra.uni DONE;
        DONE:
        }
        .loc    1 16 8
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
        {%f1, %f2,
        %f3, %f4}, %rd1, %rd2, p, 1, 1, 0, 1;
        add.s32 %r1, %r2, 3; add.s32 %r3, %r1, 4;
        .loc    1 0 0
        @!%p2 bra     $L__BB0_2;
        ret;
    }
        .file    1 "/somewhere/kernels.py"
    """)

SASS = textwrap.dedent("""\
        .target    sm_90a
        .section    .text.kernel,"ax",@progbits
    .text.kernel:
        //## File "/somewhere/kernels.py", line 14
            /*0000*/                   LDC R1, c[0x0][0x28] ;
    .L_x_13:
            /*0010*/               @!P0 BRA `(.L_x_13) ;
        //## File "/somewhere/kernels.py", line 16
            /*0020*/                   @UP1 SYNCS.EXCH.64 URZ, [UR8+0x20000], UR4 ;
            /*0030*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4], R24, gsb0 ;
    """)


def test_ptx_instructions_and_their_lines():
    found = [(i.line, i.where.line if i.where else None, i.opcode) for i in parse_ptx(PTX)]
    assert found == [
        (13, 14, "ld.param::entry.b64"),
        (16, 15, "mbarrier.init.shared::cta.b64"),
        (22, 15, "mbarrier.try_wait.parity.shared.b64"),
        (23, 15, "bra.uni"),
        (27, 16, "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"),
        (30, 16, "add.s32"),
        (30, 16, "add.s32"),
        (32, None, "bra"),
        (33, None, "ret"),
    ]


def test_an_instruction_over_several_lines_is_one():
    [wgmma] = [i for i in parse_ptx(PTX) if "wgmma" in i.opcode]
    assert wgmma.text.endswith("{%f1, %f2, %f3, %f4}, %rd1, %rd2, p, 1, 1, 0, 1;")
    assert str(wgmma.where) == "kernels.py:16"


def test_sass_instructions_and_their_lines():
    listing, found = parse_sass(SASS)
    assert [(i.where.line, i.opcode, i.kind) for i in found if i.where] == [
        (14, "LDC", ""),
        (14, "BRA", ""),
        (16, "SYNCS.EXCH.64", "barrier"),
        (16, "HGMMA.64x128x16.F32", "tensor core"),
    ]
    lines = listing.splitlines()
    assert all(i.opcode in lines[i.line - 1] for i in found)
    assert "File" not in listing
    assert ".L_x_13:" in lines


def test_files_are_named_as_the_reader_knows_them():
    assert '.file    1 "kernels.py"' in with_titles(PTX)
    register_cell("/tmp/ipykernel_1/42.py", "matmul")
    text = '    .file    1 "/tmp/ipykernel_1/42.py"\n'
    assert with_titles(text) == '    .file    1 "cell matmul"\n'
    assert str(locate("/tmp/ipykernel_1/42.py", 3)) == "cell matmul, line 3"


@pytest.mark.parametrize(
    ("pattern", "opcode", "expected"),
    [
        ("wgmma.mma_async", "wgmma.mma_async.sync.aligned.m64n8k16", True),
        ("wgmma.mma", "wgmma.mma_async.sync.aligned", False),
        ("st", "st.global.b32", True),
        ("st", "stmatrix.sync.aligned", False),
        ("tcgen05.mma", "tcgen05.mma.cta_group::2.kind::f16", True),
        ("mma.cta_group::2", "tcgen05.mma.cta_group::2.kind::f16", True),
        ("mma.cta_group::2", "tcgen05.mma.cta_group::1.kind::f16", False),
        ("cta_group", "tcgen05.mma.cta_group::1", True),
        ("UTCHMMA", "UTCHMMA.2CTA", True),
        ("2CTA", "UTCHMMA.2CTA", True),
        ("HGMMA", "QHGMMA.64", False),
        ("UTMALDG*MULTICAST", "UTMALDG.4D.MULTICAST", True),
        ("UTMALDG*MULTICAST", "UTMALDG.4D", False),
        ("hgmma", "HGMMA.64x128x16.F32", False),
    ],
)
def test_patterns_match_whole_parts_of_names(pattern, opcode, expected):
    assert matches(pattern, opcode) is expected


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("wgmma.fence.sync.aligned", "tensor core"),
        ("tcgen05.ld.sync.aligned.16x256b.x8.b32", "tensor core"),
        ("mma.sync.aligned.m16n8k16", "tensor core"),
        ("UTCBAR.2CTA.MULTICAST", "tensor core"),
        ("LDTM.16dp256bit.x8", "tensor core"),
        ("cp.async.bulk.tensor.4d.shared::cta.global", "TMA"),
        ("cp.async.ca.shared.global", ""),
        ("UTMALDG.4D", "TMA"),
        ("UBLKCP.G.S", "TMA"),
        ("mbarrier.try_wait.parity.shared.b64", "barrier"),
        ("bar.sync", "barrier"),
        ("barrier.cluster.wait.aligned", "barrier"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("fence.proxy.async.shared::cta", "barrier"),
        ("bra.uni", ""),
        ("add.s32", ""),
        ("FFMA", ""),
        ("BRA", ""),
    ],
)
def test_kinds(opcode, kind):
    assert kind_of(opcode) == kind
