// Tensor memory (Blackwell): 128 lanes x 512 columns, and where an array lies in it.
import { EIGHT, dtypeOf, renderView, withThousands } from "./kit.mjs";
import {
  TMEM_COLUMNS, layoutElements, layoutHolders, placeParts, pythonTuple, tmemAllocated, tmemCode, tmemColumns,
  tmemLayout, tmemPacking,
} from "./memory.mjs";

const ALLOCATED = 4;
const PALETTE5 = [...EIGHT.slice(0, 4), "#b9c0c8"];

function studyTmem(state) {
  const ref = {
    shape: [state.rows, state.columns], bits: state.bits, packed: state.packed && state.bits < 32,
    collective: state.collective,
  };
  const layout = tmemLayout(ref);
  const held = layoutElements(layout, ref.shape);
  const { places } = layoutHolders(layout, ref.shape, held);
  const [rows, cols] = ref.shape;
  const s = { ref, held, places, cols, packing: tmemPacking(ref) };
  const value = Int16Array.from({ length: rows * cols }, (_, i) => placeParts(held, places[i])[0] >> 5);
  const left = {
    title: `The array, ${pythonTuple(ref.shape)} of ${ref.bits} bits`,
    rows, cols, value, palette: PALETTE5, label: (i) => String(placeParts(held, places[i])[0]), blocks: [16, 16],
    rowTitle: "row", colTitle: "column", rowName: String, colName: String,
  };
  const used = tmemColumns(ref);
  const allocated = tmemAllocated(ref);
  const memory = new Int16Array(128 * TMEM_COLUMNS).fill(-1);
  for (let lane = 0; lane < 128; lane++) {
    for (let c = 0; c < allocated; c++) memory[lane * TMEM_COLUMNS + c] = c < used ? lane >> 5 : ALLOCATED;
  }
  const right = {
    title: "Tensor memory: 128 lanes x 512 columns of 32 bits",
    rows: 128, cols: TMEM_COLUMNS, value: memory, palette: PALETTE5, blocks: [32, 128],
    rowTitle: "lane", colTitle: "column", rowName: String, colName: String,
  };
  return {
    ...s, used, allocated, panels: [left, right],
    legend: [...PALETTE5.slice(0, 4).map((c, w) => [c, `lanes ${32 * w} to ${32 * w + 31}: warp ${w} only`]),
      [PALETTE5[ALLOCATED], "allocated, not used"]],
    sentence: `${pythonTuple(ref.shape)} of ${ref.bits} bits${ref.bits < 32 ? (ref.packed ? ", packed" : ", unpacked") : ""}` +
      `${ref.collective ? ", collective" : ""}: ${used} of 512 columns; an allocation of ${allocated}.`,
    table: [
      ["In one column", `${s.packing} element${s.packing > 1 ? "s" : ""} of ${ref.bits} bits in 32 bits` +
        `${s.packing * ref.bits < 32 ? ": the rest is unused" : ""}`],
      ["Allocated", `${allocated} columns x 128 lanes x 4 bytes = ${withThousands(allocated * 512)} bytes (a power of two, 32 columns at least)`],
    ],
    code: tmemKernel(ref),
  };
}

function tmemKernel(ref) {
  const dtype = dtypeOf(ref.bits);
  return `import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

# among the scratch_types of a plgpu.kernel (Blackwell: sm_100a)
scratch_types = dict(acc_tmem=${tmemCode(ref, dtype)})
`;
}

function elementsIn(s, lane, column) {
  const first = (lane * s.held.registers + column) * s.held.vector;
  return column < s.used ? Array.from(s.held.elements.subarray(first, first + s.held.vector)) : [];
}

function pointTmem(s, state, panel, cell) {
  if (panel === 0) {
    const [lane, column, at] = placeParts(s.held, s.places[cell]);
    const part = s.packing > 1 ? `, bits ${at * s.ref.bits} to ${(at + 1) * s.ref.bits - 1}` : "";
    return {
      marks: [[cell], [lane * TMEM_COLUMNS + column]],
      text: `Element (${Math.floor(cell / s.cols)}, ${cell % s.cols}): lane ${lane}, column ${column}${part}. Warp ${lane >> 5} may read it.`,
    };
  }
  if (panel === 1) {
    const [lane, column] = [Math.floor(cell / TMEM_COLUMNS), cell % TMEM_COLUMNS];
    const own = elementsIn(s, lane, column);
    const what = own.length ? own.map((e) => `(${Math.floor(e / s.cols)}, ${e % s.cols})`).join(" ") :
      column < s.allocated ? "allocated, not used" : "not allocated";
    return { marks: [own, [cell]], text: `Lane ${lane}, column ${column}: ${what}. Warp ${lane >> 5} may read it.` };
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
  state: { rows: 128, columns: 64, bits: 16, packed: true, collective: false, warp: -1 },
  fields: [
    ["rows", "Rows (M)", [[128, "128"], [64, "64"]]],
    ["columns", "Columns (N)", "number"],
    ["bits", "Element", [[8, "8 bits"], [16, "16 bits"], [32, "32 bits"]]],
    ["packed", "packed", "check"],
    ["collective", "collective (two blocks)", "check"],
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
