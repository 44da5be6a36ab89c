// Register layouts: who of 128 threads holds an element, and what a thread holds.
import { EIGHT, ramp, renderView, withThousands } from "./kit.mjs";
import {
  CATALOG, dtypeOf, layoutCode, layoutElements, layoutHolders, namedLayout, placeParts, pythonTuple,
  refCode,
} from "./memory.mjs";
import { LAYOUT_FIELD, checkSize } from "./shared_fields.mjs";

const WARP_COLOURS = EIGHT.slice(0, 4);

function shapeOf(state) {
  const one = CATALOG[state.register_layout]?.rank === 1;
  return one ? [state.columns] : [state.rows, state.columns];
}

/** Rows and columns to draw a vector in: as wide as 16. */
function gridOf(shape) {
  if (shape.length === 2) return shape;
  const wide = [16, 8, 4, 2, 1].find((w) => shape[0] % w === 0);
  return [shape[0] / wide, wide];
}

function studyRegisters(state) {
  const shape = shapeOf(state);
  checkSize(...shape);
  const layout = namedLayout(state.register_layout, shape, state.bits);
  const held = layoutElements(layout, shape);
  const { replication, places } = layoutHolders(layout, shape, held);
  const [rows, cols] = gridOf(shape);
  const s = { shape, held, replication, places, splat: layout.kind === "splat", cols };
  const value = new Int16Array(rows * cols);
  const palette = paletteOf(state.colour, held.registers);
  for (let i = 0; i < value.length; i++) {
    const [thread, register] = placeParts(held, places[i * replication]);
    value[i] = { warp: thread >> 5, lane: thread & 31, register }[state.colour];
  }
  const label = (i) => {
    const [thread, register] = placeParts(held, places[i * replication]);
    return state.colour === "register" ? `r${register}` : `${thread & 31}`;
  };
  const left = {
    title: `The array, ${pythonTuple(shape)}; each element names its ${state.colour === "register" ? "register" : "lane"}`,
    rows, cols, value, palette, label, blocks: shape.length === 2 ? [8, 8] : undefined,
    rowTitle: shape.length === 2 ? "row" : "from", colTitle: shape.length === 2 ? "column" : "element",
    rowName: (r) => String(shape.length === 2 ? r : r * cols), colName: String,
  };
  const threads = Int16Array.from({ length: 128 }, (_, t) =>
    ({ warp: t >> 5, lane: t & 31, register: -1 })[state.colour]);
  const right = {
    title: "The 128 lanes of the Pallas thread",
    rows: 16, cols: 8, value: threads, palette, label: (t) => String(t & 31), blocks: [4, 8],
    rowTitle: "warp", colTitle: "lane of the warp, modulo 8", rowName: (r) => (r % 4 ? "" : String(r / 4)), colName: String,
  };
  return {
    ...s, panels: [left, right], legend: registerLegend(state.colour, palette, held.registers),
    sentence: `${state.register_layout}: ${CATALOG[state.register_layout].what}.`,
    table: registerTable(s, state), code: registerCode(state, shape, held),
  };
}

function paletteOf(colour, registers) {
  return colour === "warp" ? WARP_COLOURS : ramp(colour === "lane" ? 32 : registers);
}

function registerLegend(colour, palette, registers) {
  if (colour === "warp") return palette.map((c, i) => [c, `warp ${i}`]);
  if (colour === "lane") return [0, 8, 16, 24, 31].map((i) => [palette[i], `lane ${i}`]);
  const last = registers - 1;
  return [0, last >> 1, last].filter((v, i, all) => all.indexOf(v) === i).map((i) => [palette[i], `register ${i}`]);
}

function registerTable({ held, replication, splat }, state) {
  const bits = held.vector * state.bits * held.registers;
  return [
    ["A lane holds", splat ? "1 value, which stands for all elements" :
      `${withThousands(held.registers)} registers of ${held.vector} element${held.vector === 1 ? "" : "s"} ` +
      `(${(held.vector * state.bits) / 8} bytes): ${withThousands(bits / 8)} bytes = ${Math.ceil(bits / 32)} ` +
      "hardware registers of 32 bits"],
    ["Each element is held by", replication === 1 ? "one lane" : `${replication} lanes (replicated)`],
  ];
}

function registerCode(state, shape, held) {
  const dtype = dtypeOf(state.bits);
  const head = `import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

`;
  const random = (sizes) => `x = jax.random.normal(jax.random.key(0), ${pythonTuple(sizes)}).astype(jnp.${dtype})\n`;
  if (state.register_layout === "WG_SPLAT") {
    return `${head}def body(x_gmem, o_gmem):
    o_gmem[...] = jnp.full(${pythonTuple(shape)}, 1.5, jnp.${dtype})  # constants are splats; nothing casts to one

kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(${pythonTuple(shape)}, jnp.${dtype}))
x = jnp.full(${pythonTuple(shape)}, 1.5, jnp.${dtype})
`;
  }
  const layout = `layout = ${layoutCode(state.register_layout, shape, state.bits)}\n`;
  const acrossRows = held.vector > 1 && held.elements[1] - held.elements[0] !== 1;
  if (acrossRows) return head + layout + turnedCode(shape, state.bits, random);
  return `${head}${layout}
def body(x_gmem, o_gmem):
    x = plgpu.load(x_gmem, layout=layout, optimized=False)
    if hasattr(plgpu, "store"):  # jax 0.12 and later
        plgpu.store(o_gmem, x, optimized=False)
    else:
        o_gmem[...] = x

kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(${pythonTuple(shape)}, jnp.${dtype}))
${random(shape)}`;
}

/** Registers whose elements lie below each other come from, and go to, a transposed ref. */
function turnedCode([rows, columns], bits, random) {
  const dtype = dtypeOf(bits);
  const minor = [1024, 512, 256].map((row) => row / bits).find((wide) => rows % wide === 0) ?? rows;
  const swizzle = [32, 64, 128].includes((minor * bits) / 8) ? (minor * bits) / 8 : null;
  const ref = { shape: [columns, rows], bits, tiles: [[8, minor]], swizzle };
  return `
def body(x_gmem, o_gmem, x_smem, barrier):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
    plgpu.barrier_wait(barrier)
    turned = x_smem.transpose((1, 0))  # ${pythonTuple([rows, columns])}; moves no data
    x = plgpu.load(turned, layout=layout, optimized=False)
    if hasattr(plgpu, "store"):  # jax 0.12 and later
        plgpu.store(turned, x, optimized=False)
    else:
        turned[...] = x
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(x_smem, o_gmem)
    plgpu.wait_smem_to_gmem(0)

kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct(${pythonTuple([columns, rows])}, jnp.${dtype}),
    scratch_types=dict(
        x_smem=${refCode(ref, dtype)},
        barrier=plgpu.Barrier(),
    ),
)
${random([columns, rows])}`;
}

function indexWords(s, element) {
  return s.shape.length === 1 ? `(${element},)` :
    `(${Math.floor(element / s.shape[1])}, ${element % s.shape[1]})`;
}

function holdersOf(s, element) {
  return Array.from(s.places.subarray(element * s.replication, (element + 1) * s.replication),
    (place) => placeParts(s.held, place));
}

function describeHolders(s, element) {
  const holders = holdersOf(s, element);
  const [thread, register, at] = holders[0];
  const which = `register ${register}${s.held.vector > 1 ? `, element ${at} of it` : ""}`;
  const name = `Element ${indexWords(s, element)}`;
  if (holders.length === 1) {
    return `${name}: warp ${thread >> 5}, lane ${thread & 31} (thread ${thread}), ${which}.`;
  }
  const warps = [...new Set(holders.map(([t]) => t >> 5))];
  const lanes = [...new Set(holders.map(([t]) => t & 31))];
  const list = (values) => (values.length > 8 ? `${values.slice(0, 8).join(", ")}, ...` : values.join(", "));
  return (
    `${name} is held by ${holders.length} threads: warp${warps.length > 1 ? "s" : ""} ${list(warps)}, ` +
    `lane${lanes.length > 1 ? "s" : ""} ${list(lanes)}; ${which}.`
  );
}

function elementsOf(s, thread) {
  if (s.splat) return Array.from({ length: s.shape.reduce((a, b) => a * b, 1) }, (_, i) => i);
  const per = s.held.registers * s.held.vector;
  return Array.from(s.held.elements.subarray(thread * per, (thread + 1) * per));
}

function describeThread(s, thread) {
  const own = elementsOf(s, thread);
  const { registers, vector } = s.held;
  const most = Math.min(registers, 12);
  const listed = s.splat ? ["r0: every element"] : Array.from({ length: most }, (_, r) =>
    `r${r}: ${own.slice(r * vector, (r + 1) * vector).map((e) => indexWords(s, e)).join(" ")}`);
  const more = registers > most ? `; ... ${registers} registers` : "";
  return `Lane ${thread} of the Pallas thread: warp ${thread >> 5}, lane ${thread & 31} of it. ${listed.join("; ")}${more}.`;
}

function pointRegisters(s, state, panel, cell) {
  if (panel === 0) {
    const threads = holdersOf(s, cell).map(([t]) => t);
    return { marks: [[cell], threads], text: describeHolders(s, cell) };
  }
  const thread = panel === 1 ? cell : state.lane;
  if (thread < 0 || thread > 127) {
    return { marks: [[], []], text: "Point at an element to see who holds it, at a lane to see what it holds. A click on a lane isolates it." };
  }
  return {
    marks: [elementsOf(s, thread), [thread]],
    faint: [true, false],
    text: describeThread(s, thread),
  };
}

export const registerSpec = {
  name: "registers",
  label: "Register layouts: who holds what",
  state: { register_layout: "WGMMA", rows: 64, columns: 32, bits: 16, colour: "lane", lane: -1 },
  fields: [
    LAYOUT_FIELD,
    ["rows", "Rows", "number"],
    ["columns", "Columns", "number"],
    ["bits", "Element", [[8, "8 bits"], [16, "16 bits"], [32, "32 bits"]]],
    ["colour", "Colour by", [["lane", "lane"], ["warp", "warp"], ["register", "register"]]],
    ["lane", "Isolate lane, 0 to 127 (-1: none)", "number"],
  ],
  study: studyRegisters,
  point: pointRegisters,
  pick(s, state, panel, cell) {
    const thread = panel === 1 ? cell : holdersOf(s, cell)[0][0];
    return { lane: thread === state.lane ? -1 : thread };
  },
};

export default { render: (given) => renderView(registerSpec, given) };
