"""Dumps hold what JAX's variables print, and control codes are read as they are encoded."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import jax.numpy as jnp
import pytest

from course_lib.compiler import (
    CompileError,
    ToolchainMissing,
    compile_for,
    dumps,
    record,
    toolchain,
)
from course_lib.compiler.dumps import VARIABLES, control_codes, dump
from course_lib.diagnostics import CourseError
from course_lib.kernels import debugging
from course_lib.workers import Worker, WorkerDied
from tests.compiler.kernels import spec

TREE = Path(__file__).resolve().parents[2]
VECTOR = spec(256)
FILES = sorted(dumps._folder().glob("*.txt.gz"))
HOLDS = {
    "CONSTRAINT_SYSTEM": "ConstraintSystem",
    "RESOURCES": "Resources(",
    "MLIR_PASSES": "out_layouts",
    "PTX": ".visible .entry",
    "PTXAS": "registers",
    "SASS": "LDG.E",
    "SASS_CTRL": "LDG.E",
}


@pytest.fixture
def no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_TOOLCHAIN", str(tmp_path))


@pytest.mark.parametrize("variable", VARIABLES)
def test_each_variable_prints_what_it_is_for(variable):
    text = dump(variable, debugging.double, VECTOR)
    assert HOLDS[variable] in text
    # The course itself may lie below /tmp.
    assert tempfile.gettempdir() not in text.replace(str(TREE), "")
    assert not re.search(r"kernel_\d+_mosaic_gpu", text)


def test_a_kernel_prints_as_often_as_it_is_asked():
    """Past the cache, too: in one process JAX would print it once."""
    x = spec(384)
    request = dumps.requests.prepare(debugging.double, (x,))
    tools, target = toolchain.find(), dumps.api.targets.get("sm_90a")
    first, second = (dumps._ask("PTX", request, target, tools, 60.0) for _ in range(2))
    assert first == second
    assert ".visible .entry" in first


def test_without_a_variable_only_print_layout_prints():
    assert dump("", debugging.double, VECTOR).strip() == ""
    lines = dump("", debugging.layouts, spec(64, 64)).split("\n")
    assert [line.split(":")[0] for line in lines if line] == ["x", "w", "x_smem"]
    assert "WGMMA" in lines[1]
    assert "WGMMA" not in lines[0]


def test_the_dump_of_ptxas_agrees_with_compile_for():
    for kernel in (debugging.softmax_whole, debugging.softmax_pieces):
        x = spec(2, 128, 384)
        text = dump("PTXAS", kernel, x)
        spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)\b", text))
        warned = "ptxas warning" in text
        assert warned == (compile_for(kernel, x).spill_bytes > 0)
        assert warned == (spilled > 0)


def _alone(**variables):
    """A compiler's process of its own, with variables of the environment."""
    tools = toolchain.find()
    path = os.pathsep.join([os.path.dirname(tools.ptxas), os.environ["PATH"]])
    quiet = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "PATH": path}
    return Worker("alone", env={**quiet, **variables}, path=tools.path)


def _compile(worker):
    request = dumps.requests.prepare(debugging.double, (VECTOR,))
    target = dumps.api.targets.get("sm_90a")
    tools = os.path.dirname(toolchain.find().nvdisasm)
    return worker.call(dumps.dump_kernel, "", request.payload, target, tools, timeout_s=60.0)


def test_a_folder_gets_all_dumps_as_files(tmp_path):
    worker = _alone(MOSAIC_GPU_DUMP_TO=str(tmp_path))
    try:
        _compile(worker)
    finally:
        worker.close()
    suffixes = {file.name.split(".", 1)[1] for file in tmp_path.iterdir()}
    assert {
        "ptx",
        "ptxas",
        "mlir-passes.log",
        "sass_ctrl",
        "before_layout_inference.txt",
    } <= suffixes


@pytest.mark.parametrize("variable", ["MOSAIC_GPU_DUMP_LLVM", "MOSAIC_GPU_LLVM_DEBUG_ONLY"])
def test_llvms_own_dumps_need_a_debug_build(variable):
    worker = _alone(**{variable: "serialize-to-llvm"})
    try:
        with pytest.raises(WorkerDied) as death:
            _compile(worker)
    finally:
        worker.close()
    assert "NDEBUG" in death.value.stderr


def test_an_unknown_variable_is_named():
    with pytest.raises(CourseError, match=r'no variable "SAS".*SASS_CTRL'):
        dump("SAS", debugging.double, VECTOR)


def test_what_does_not_compile_is_said_in_words():
    with pytest.raises(CompileError, match="no Mosaic GPU kernel"):
        dump("PTX", jnp.sin, VECTOR)


# --- control codes ----------------------------------------------------------------------------


def test_the_parts_of_a_control_code():
    line = "   0:1:3:Y:10        /*00b0*/                   @!P0 LDG.E.64 R2, desc[UR4][R2.64] "
    [c] = control_codes(f"\t.target\tsm_90a\n.L_x_1:\n{line}\n")
    assert (c.waits, c.reads, c.writes, c.yields, c.stall) == ({0}, 1, 3, True, 10)
    assert (c.address, c.opcode) == (0xB0, "LDG.E.64")
    [c] = control_codes("   -:-:-:-:00        /*0110*/                   BRA `(.L_x_0)")
    assert (c.waits, c.reads, c.writes, c.yields, c.stall) == (set(), None, None, False, 0)


def test_the_load_is_waited_for_by_the_addition():
    codes = control_codes(dump("SASS_CTRL", debugging.double, VECTOR))
    load = next(i for i, c in enumerate(codes) if c.opcode.startswith("LDG"))
    first = next(c for c in codes[load + 1 :] if codes[load].writes in c.waits)
    assert first.opcode.startswith(("FADD", "FMUL"))


def _encoded(word: int) -> tuple[set[int], int | None, int | None, bool, int]:
    """The control code in the upper 64 bits of an instruction (Jia et al., 2018, section 2.1)."""
    code = word >> 41
    reads, writes = (code >> 8) & 7, (code >> 5) & 7
    waits = {i for i in range(6) if code >> 11 + i & 1}
    none = 7
    return (
        waits,
        None if reads == none else reads,
        None if writes == none else writes,
        bool(code >> 4 & 1),
        code & 15,
    )


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [
        (debugging.double, ((256,),)),
        (debugging.softmax_pieces, ((2, 32, 256),)),
    ],
)
def test_control_codes_are_those_of_the_machine_code(kernel, shapes, tmp_path):
    """ptxas and nvdisasm, by hand: what is printed is what is encoded."""
    args = [spec(*s) for s in shapes]
    tools = toolchain.find()
    assert tools.nvdisasm
    source, cubin = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    source.write_text(dump("PTX", kernel, *args))
    subprocess.run([tools.ptxas, "-O3", "-arch=sm_90a", source, "-o", cubin], check=True)
    said = subprocess.run(
        [tools.nvdisasm, "-c", "-hex", cubin], capture_output=True, text=True, check=True
    ).stdout
    pairs = re.findall(r"/\*([0-9a-f]{4,})\*/[^\n]*\n\s*/\* (0x[0-9a-f]{16}) \*/", said)
    encoded = {int(address, 16): _encoded(int(word, 16)) for address, word in pairs}
    codes = control_codes(dump("SASS_CTRL", kernel, *args))
    assert len(codes) > 15
    for c in codes:
        assert (set(c.waits), c.reads, c.writes, c.yields, c.stall) == encoded[c.address], c


# --- recordings -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, *_ in dumps.RECORDED])
def test_a_recorded_dump_is_of_todays_kernel(name):
    source = record.source_digest(record.Call(name, (), ()))
    found = [json.loads(gzip.decompress(f.read_bytes())) for f in FILES]
    mine = [d for d in found if d["call"].startswith(name.replace(":", "."))]
    assert mine
    assert {d["source"] for d in mine} == {source}, "python -m course_lib.compiler.dumps"


def test_every_recorded_dump_is_of_the_list_and_names_no_path():
    assert len(FILES) == sum(len(variables) for _, _, variables in dumps.RECORDED)
    for file in FILES:
        text = gzip.decompress(file.read_bytes()).decode()
        assert "/tmp" not in text
        assert "site-packages" not in text


def test_without_a_compiler_the_recording_is_shown(no_compiler):
    codes = control_codes(dump("SASS_CTRL", debugging.double, VECTOR))
    assert any(c.opcode.startswith("LDG") for c in codes)
    with pytest.raises(ToolchainMissing):
        dump("SASS_CTRL", debugging.double, spec(512))
    with pytest.raises(ToolchainMissing):
        dump("SASS_CTRL", lambda x: debugging.double(x), VECTOR)


def test_a_compiler_that_finds_no_nvdisasm_shows_the_recording(monkeypatch):
    monkeypatch.setattr(dumps, "_ask", lambda *_: "\n")
    monkeypatch.setattr(dumps.cache, "load", lambda key: None)
    assert "LDG" in dump("SASS_CTRL", debugging.double, VECTOR)
    with pytest.raises(ToolchainMissing, match="nvdisasm"):
        dump("SASS_CTRL", debugging.double, spec(512))
