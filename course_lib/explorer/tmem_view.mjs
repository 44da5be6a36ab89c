// Tensor memory (Blackwell): 128 lanes x 512 columns, and where arrays lie in it.
import { EIGHT, renderView, withThousands } from "./kit.mjs";
import {
  TMEM_COLUMNS, allocateTmem, dtypeOf, layoutElements, layoutHolders, parseTmem, placeParts, pythonTuple, tmemCode,
  tmemColumns, tmemLayout, tmemPacking,
} from "./memory.mjs";

const ALLOCATED = 4;
const OTHER = 5;
const PALETTE7 = [...EIGHT.slice(0, 4), "#b9c0c8", EIGHT[6], EIGHT[4]];

function refsOf(state) {
  const first = {
    shape: [state.rows, state.columns], bits: state.bits, packed: state.packed && state.bits < 32,
    collective: state.collective,
  };
  return [first, ...parseTmem(state.more, state.collective)];
}

const kindOf = (ref) =>
  `${pythonTuple(ref.shape)} of ${ref.bits} bits${ref.bits < 32 ? (ref.packed ? ", packed" : ", unpacked") : ""}` +
  `${ref.collective ? ", collective" : ""}`;

function studyTmem(state) {
  const refs = refsOf(state);
  const layouts = refs.map(tmemLayout);
  const { starts, end, allocated } = allocateTmem(refs);
  const shown = Math.max(0, Math.min(refs.length - 1, state.shown));
  const ref = refs[shown];
  const held = layoutElements(layouts[shown], ref.shape);
  const { places } = layoutHolders(layouts[shown], ref.shape, held);
  const [rows, cols] = ref.shape;
  const s = { ref, refs, held, places, cols, shown, starts, packing: tmemPacking(ref), start: starts[shown] };
  const value = Int16Array.from({ length: rows * cols }, (_, i) => placeParts(held, places[i])[0] >> 5);
  const which = refs.length > 1 ? `Array ${shown}` : "The array";
  const left = {
    title: `${which}, ${pythonTuple(ref.shape)} of ${ref.bits} bits`,
    rows, cols, value, palette: PALETTE7, label: (i) => String(placeParts(held, places[i])[0]), blocks: [16, 16],
    rowTitle: "row", colTitle: "column", rowName: String, colName: String,
  };
  const used = tmemColumns(ref);
  const right = {
    title: "Tensor memory: 128 lanes x 512 columns of 32 bits",
    rows: 128, cols: TMEM_COLUMNS, value: memoryOf(s, allocated), palette: PALETTE7, blocks: [32, 128],
    rowTitle: "lane", colTitle: "column", rowName: String, colName: String,
  };
  const others = refs.length > 1 ? [[PALETTE7[OTHER], "of another array"], [PALETTE7[OTHER + 1], "of the one next to that"]] : [];
  return {
    ...s, used, end, allocated, panels: [left, right],
    legend: [...PALETTE7.slice(0, 4).map((c, w) => [c, `lanes ${32 * w} to ${32 * w + 31}: warp ${w} only`]),
      [PALETTE7[ALLOCATED], "allocated, not used"], ...others],
    sentence: sentenceOfTmem(refs, used, end, allocated), table: tmemTable(s, allocated), code: tmemKernel(refs),
  };
}

function memoryOf({ refs, starts, shown }, allocated) {
  const memory = new Int16Array(128 * TMEM_COLUMNS).fill(-1);
  for (let lane = 0; lane < 128; lane++) {
    memory.fill(ALLOCATED, lane * TMEM_COLUMNS, lane * TMEM_COLUMNS + allocated);
    refs.forEach((ref, i) => {
      const first = lane * TMEM_COLUMNS + starts[i];
      memory.fill(i === shown ? lane >> 5 : OTHER + (i % 2), first, first + tmemColumns(ref));
    });
  }
  return memory;
}

function sentenceOfTmem(refs, used, end, allocated) {
  if (refs.length === 1) return `${kindOf(refs[0])}: ${used} of 512 columns; an allocation of ${allocated}.`;
  return `${refs.map(kindOf).join("; ")}: ${end} of 512 columns together; one allocation of ${allocated}.`;
}

function tmemTable({ refs, starts, packing, ref }, allocated) {
  const spans = refs.map((one, i) => `array ${i}: columns ${starts[i]} to ${starts[i] + tmemColumns(one) - 1}`);
  return [
    ["In one column", `${packing} element${packing > 1 ? "s" : ""} of ${ref.bits} bits in 32 bits` +
      `${packing * ref.bits < 32 ? ": the rest is unused" : ""}`],
    ...(refs.length > 1 ? [["Where they lie", `${spans.join("; ")} (each begins at a multiple of 4)`]] : []),
    ["Allocated", `${allocated} columns x 128 lanes x 4 bytes = ${withThousands(allocated * 512)} bytes (a power of two, 32 columns at least; 512 in all)`],
  ];
}

/** The registers' layout that reaches an array, or null: 8-bit elements a column each have none. */
function layoutFor({ shape, bits, packed, collective }) {
  if (bits === 8) return shape[0] === 128 && packed ? "plgpu.Layout.TCGEN05_TMEM_NATIVE(4)" : null;
  if (shape[0] === 128) return "plgpu.Layout.TCGEN05";
  return collective ? `plgpu.Layout.TCGEN05_M64_COLLECTIVE(${shape[1]})` : "plgpu.Layout.WGMMA";
}

/** Writes x to the first array, through registers, and reads it back. */
function tmemKernel(refs) {
  const names = refs.map((_, i) => (refs.length === 1 ? "x_tmem" : `x${i}_tmem`));
  const [ref] = refs;
  const dtype = dtypeOf(ref.bits);
  const layout = layoutFor(ref);
  const scratch = refs.map((one, i) => `        ${names[i]}=${tmemCode(one, dtypeOf(one.bits))},`).join("\n");
  const pair = ref.collective ? '\n    cluster=(2,),\n    cluster_names=("pair",),' : "";
  const out = ref.collective ? 'o_gmem.at[jax.lax.axis_index("pair")]' : "o_gmem";
  const shape = ref.collective ? [2, ...ref.shape] : ref.shape;
  const moved = layout === null ? `    # JAX has no register layout for 8-bit elements that have a column each
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
    plgpu.barrier_wait(barrier)
    plgpu.copy_smem_to_gmem(x_smem, ${out})
    plgpu.wait_smem_to_gmem(0)` : `    layout = ${layout}
    x = plgpu.load(x_gmem, layout=layout, optimized=False)
    plgpu.async_store_tmem(${names[0]}, x)
    plgpu.commit_tmem()
    x = plgpu.async_load_tmem(${names[0]}, layout=layout)
    plgpu.wait_load_tmem()
    if hasattr(plgpu, "store"):  # jax 0.12 and later
        plgpu.store(${out}, x, optimized=False)
    else:
        ${ref.collective ? out.replace(".at", "") : "o_gmem[...]"} = x`;
  const more = layout === null ? `
        x_smem=plgpu.SMEM(${pythonTuple(ref.shape)}, jnp.${dtype}),
        barrier=plgpu.Barrier(),` : "";
  const also = layout === null ? ", x_smem, barrier" : "";
  return `import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

def body(x_gmem, o_gmem, ${names.join(", ")}${also}):  # Blackwell: sm_100a
${moved}

kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct(${pythonTuple(shape)}, jnp.${dtype}),${pair}
    scratch_types=dict(
${scratch}${more}
    ),
)
x = jax.random.normal(jax.random.key(0), ${pythonTuple(ref.shape)}).astype(jnp.${dtype})
`;
}

function elementsIn(s, lane, column) {
  const first = (lane * s.held.registers + column - s.start) * s.held.vector;
  const inside = column >= s.start && column < s.start + s.used;
  return inside ? Array.from(s.held.elements.subarray(first, first + s.held.vector)) : [];
}

function describePlace(s, lane, column, own) {
  if (own.length) return own.map((e) => `(${Math.floor(e / s.cols)}, ${e % s.cols})`).join(" ");
  const other = s.refs.findIndex((ref, i) => column >= s.starts[i] && column < s.starts[i] + tmemColumns(ref));
  if (other >= 0) return `of array ${other}`;
  return column < s.allocated ? "allocated, not used" : "not allocated";
}

function pointTmem(s, state, panel, cell) {
  if (panel === 0) {
    const [lane, column, at] = placeParts(s.held, s.places[cell]);
    const part = s.packing > 1 ? `, bits ${at * s.ref.bits} to ${(at + 1) * s.ref.bits - 1}` : "";
    return {
      marks: [[cell], [lane * TMEM_COLUMNS + s.start + column]],
      text: `Element (${Math.floor(cell / s.cols)}, ${cell % s.cols}): lane ${lane}, column ${s.start + column}${part}. Warp ${lane >> 5} may read it.`,
    };
  }
  if (panel === 1) {
    const [lane, column] = [Math.floor(cell / TMEM_COLUMNS), cell % TMEM_COLUMNS];
    const own = elementsIn(s, lane, column);
    return {
      marks: [own, [cell]],
      text: `Lane ${lane}, column ${column}: ${describePlace(s, lane, column, own)}. Warp ${lane >> 5} may read it.`,
    };
  }
  if (state.warp < 0 || state.warp > 3) {
    return { marks: [[], []], text: "Point at an element or at a place in tensor memory. A click isolates what one warp may read." };
  }
  const mine = [];
  const own = (i) => placeParts(s.held, s.places[i])[0] >> 5 === state.warp;
  for (let i = 0; i < s.panels[0].value.length; i++) if (own(i)) mine.push(i);
  const lanes = Array.from({ length: 32 * s.allocated }, (_, i) =>
    (32 * state.warp + Math.floor(i / s.allocated)) * TMEM_COLUMNS + (i % s.allocated));
  return {
    marks: [mine, lanes], faint: [true, true],
    text: `Warp ${state.warp} may read lanes ${32 * state.warp} to ${32 * state.warp + 31}: ${withThousands(mine.length)} elements of the array.`,
  };
}

export const tmemSpec = {
  name: "tmem",
  label: "Tensor memory: lanes and columns (Blackwell)",
  state: {
    rows: 128, columns: 64, bits: 16, packed: true, collective: false, more: "", shown: 0, warp: -1,
  },
  fields: [
    ["rows", "Rows (M)", [[128, "128"], [64, "64"]]],
    ["columns", "Columns (N)", "number"],
    ["bits", "Element", [[8, "8 bits"], [16, "16 bits"], [32, "32 bits"]]],
    ["packed", "packed", "check"],
    ["collective", "collective (two blocks)", "check"],
    ["more", "More arrays, as 128x64x32, 128x64x16p", "text"],
    ["shown", "Array on the left", "number"],
    ["warp", "Only what warp", [[-1, "any"], [0, "0"], [1, "1"], [2, "2"], [3, "3"]]],
  ],
  study: studyTmem,
  point: pointTmem,
  pick(s, state, panel, cell) {
    const lane = panel === 1 ? Math.floor(cell / TMEM_COLUMNS) : placeParts(s.held, s.places[cell])[0];
    return { warp: lane >> 5 === state.warp ? -1 : lane >> 5 };
  },
};

export default { render: (given) => renderView(tmemSpec, given) };
