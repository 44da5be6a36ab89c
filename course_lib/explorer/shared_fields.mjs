// What several layout views share: their fields, and shared memory as a panel.
import { withThousands } from "./kit.mjs";
import { CATALOG } from "./memory.mjs";

const ROW_BYTES = 128; // bytes: all 32 banks once
const CHUNK_BYTES = 16;

/** The ref of a state; 0 stands for no tile and for no swizzle. */
export function refOf(state) {
  const tiled = state.tile_rows > 0 && state.tile_columns > 0;
  return {
    shape: [state.rows, state.columns],
    bits: state.bits,
    tiles: tiled ? [[state.tile_rows, state.tile_columns]] : [],
    swizzle: state.swizzle || null,
    permutation: state.transposed ? [1, 0] : null,
  };
}

export const SIZE_FIELDS = [
  ["rows", "Rows", "number"],
  ["columns", "Columns", "number"],
  ["bits", "Element", [[4, "4 bits"], [8, "8 bits"], [16, "16 bits"], [32, "32 bits"]]],
];
export const REF_FIELDS = [
  ["tile_rows", "Tile rows", "number"],
  ["tile_columns", "Tile columns", "number"],
  ["swizzle", "Swizzle", [[0, "none"], [32, "32 bytes"], [64, "64 bytes"], [128, "128 bytes"]]],
  ["transposed", "transposed", "check"],
];
const MOST = 65536;

/** Throws an Error where there is more than can be drawn. */
export function checkSize(...sizes) {
  const count = sizes.reduce((a, b) => a * b, 1);
  if (count > MOST) {
    throw new Error(`${withThousands(count)} elements: at most ${withThousands(MOST)} can be drawn here.`);
  }
}

/** The memory image: rows of 128 bytes. `value` by element number becomes colour by slot. */
export function memoryPanel(ref, map, value, palette, label) {
  const cols = (ROW_BYTES * 8) / ref.bits;
  const rows = Math.ceil((map.size * ref.bits) / 8 / ROW_BYTES);
  const shown = new Int16Array(rows * cols).fill(-1);
  for (let slot = 0; slot < map.size; slot++) shown[slot] = value[map.at[slot]];
  return {
    title: "Shared memory, in rows of 128 bytes",
    rows, cols, value: shown, palette,
    label: (slot) => (slot < map.size ? label(map.at[slot]) : ""),
    blocks: [8, (CHUNK_BYTES * 8) / ref.bits],
    rowTitle: "byte", colTitle: "bank (4 bytes each)",
    rowName: (r) => String(r * ROW_BYTES),
    colName: (c) => String((c * ref.bits) >> 5),
    colStep: Math.max(1, 32 / ref.bits),
  };
}

export const LAYOUT_FIELD = ["register_layout", "Register layout", Object.keys(CATALOG).map((name) => [name, name])];
