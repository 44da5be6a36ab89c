// Shared memory: the logical matrix and its memory image side by side.
import { EIGHT, ramp, renderView, withThousands } from "./kit.mjs";
import { bankOf, checkRef, dtypeOf, memoryMap, pythonTuple, refCode } from "./memory.mjs";
import { REF_FIELDS, SIZE_FIELDS, checkSize, memoryPanel, refOf } from "./shared_fields.mjs";

const CHUNK = 16;

const COLOURS = {
  bank: { count: 32, palette: ramp(32), of: ({ map }, i) => bankOf(map.bits[i] >> 3) },
  chunk: { count: 8, palette: EIGHT, of: ({ map }, i) => (map.bits[i] >> 7) & 7 },
  phase: { count: 8, palette: EIGHT, of: ({ map }, i) => map.phase[i] },
  tile: { count: 8, palette: EIGHT, of: ({ tileOf }, i) => tileOf(i) % 8 },
  row: { count: 8, palette: EIGHT, of: ({ columns }, i) => Math.floor(i / columns) % 8 },
};

function legendOf(colour, palette) {
  if (colour === "bank") return [0, 8, 16, 24, 31].map((b) => [palette[b], `bank ${b}`]);
  if (colour === "tile") return [[palette[0], "tile 0"], [palette[1], "tile 1, and so on; every eighth alike"]];
  if (colour === "row") return [[palette[0], "row 0"], [palette[1], "row 1, and so on; every eighth alike"]];
  const word = colour === "chunk" ? "16-byte chunk" : "XORed with";
  return palette.map((c, i) => [c, `${word} ${i}`]);
}

function studySmem(state) {
  checkSize(state.rows, state.columns);
  const whole = refOf(state);
  checkRef(whole);
  const ref = state.after ? whole : { ...whole, swizzle: null };
  const map = memoryMap(ref);
  const [rows, columns] = map.shape;
  const perTile = (state.tile_rows || state.rows) * (state.tile_columns || state.columns);
  const s = { ref, map, rows, columns, tileOf: (i) => Math.floor(map.plain[i] / ref.bits / perTile) };
  const { palette, of } = COLOURS[state.colour];
  const value = Int16Array.from({ length: map.size }, (_, i) => of(s, i));
  const label = (i) => String(value[i]);
  const tile = ref.tiles[0] && (state.transposed ? [...ref.tiles[0]].reverse() : ref.tiles[0]);
  const left = {
    title: `The logical matrix, ${pythonTuple(map.shape)}`,
    rows, cols: columns, value, palette, label, blocks: tile,
    rowTitle: "row", colTitle: "column", rowName: String, colName: String,
  };
  const right = memoryPanel(ref, map, value, palette, label);
  if (ref.swizzle) right.moves = (row, chunk) => phaseAt(ref, row, chunk);
  const bytes = Math.ceil((map.size * ref.bits) / 8);
  return {
    ...s, panels: [left, right], legend: legendOf(state.colour, palette),
    sentence: sentenceOf(s, whole, state, bytes), table: tableOf(s, bytes), code: smemCode(whole),
  };
}

function phaseAt(ref, row) {
  return row & (ref.swizzle / CHUNK - 1);
}

/** How many banks the first column of the matrix lies in: what a swizzle is for. */
function banksOfColumn({ map, rows, columns }) {
  const seen = new Set();
  for (let r = 0; r < Math.min(8, rows); r++) seen.add((map.bits[r * columns] >> 7) & 7);
  return seen.size;
}

function sentenceOf(s, whole, state, bytes) {
  const tiles = whole.tiles.length ? `tiles of ${pythonTuple(whole.tiles[0])}` : "no tiling";
  const swizzle = whole.swizzle ? `swizzle ${whole.swizzle} bytes` : "no swizzle";
  const off = whole.swizzle && !state.after ? " (shown without it)" : "";
  const column = banksOfColumn(s);
  return (
    `${pythonTuple(whole.shape)} of ${whole.bits} bits, ${tiles}, ${swizzle}${off}` +
    `${state.transposed ? ", transposed" : ""}: ${withThousands(bytes)} bytes. The first ` +
    `${Math.min(8, s.rows)} elements of column 0 lie in ${column} different 16-byte chunk${column === 1 ? "" : "s"}.`
  );
}

function tableOf({ ref }, bytes) {
  const rows = [
    ["Size", `${withThousands(bytes)} bytes = ${withThousands((bytes * 8) / ref.bits)} elements = ` +
      `${withThousands(Math.ceil(bytes / CHUNK))} chunks of 16 bytes`],
    ["A row of memory", `128 bytes = ${1024 / ref.bits} elements = 8 chunks = 32 banks`],
  ];
  if (ref.swizzle) {
    rows.push(["Swizzle", `chunk number XOR (byte address // 128 mod ${ref.swizzle / 16}); repeats every ` +
      `${8 * ref.swizzle} bytes`]);
  }
  return rows;
}

function smemCode(ref) {
  const dtype = dtypeOf(ref.bits);
  const shape = pythonTuple(ref.shape);
  const use = ref.permutation ? "\n    # x_smem.transpose((1, 0)) is the transposed view; it moves no data" : "";
  return `import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

def body(x_gmem, o_gmem, x_smem, barrier):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
    plgpu.barrier_wait(barrier)${use}
    plgpu.copy_smem_to_gmem(x_smem, o_gmem)
    plgpu.wait_smem_to_gmem(0)

kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct(${shape}, jnp.${dtype}),
    scratch_types=dict(
        x_smem=${refCode(ref, dtype)},
        barrier=plgpu.Barrier(),
    ),
)
x = jax.random.normal(jax.random.key(0), ${shape}).astype(jnp.${dtype})
`;
}

function elementAt(s, panel, cell) {
  return panel === 0 ? cell : s.map.at[cell] ?? -1;
}

function pointSmem(s, state, panel, cell) {
  let element = panel < 0 ? -1 : cell < s.map.size ? elementAt(s, panel, cell) : -1;
  if (element < 0 && state.element >= 0 && state.element < s.map.size) element = state.element;
  if (element < 0) {
    return { marks: [[], []], text: "Point at an element on either side to see where it lies. A click keeps it." };
  }
  const slot = s.map.bits[element] / s.ref.bits;
  return { marks: [[element], [slot]], text: describeElement(s, element), bits: addressBits(s, element) };
}

function describeElement({ ref, map, columns }, element) {
  const bits = map.bits[element];
  const byte = bits >> 3;
  const half = ref.bits < 8 ? ` (${bits & 7 ? "high" : "low"} half)` : "";
  const plain = map.plain[element] >> 3;
  const moved = plain === byte ? "" :
    ` Before the swizzle: byte ${plain}, chunk ${(plain >> 4) & 7}; ${(plain >> 4) & 7} XOR ${map.phase[element]} = ${(byte >> 4) & 7}.`;
  return (
    `Element (${Math.floor(element / columns)}, ${element % columns}): byte ${byte}${half} = element ` +
    `${bits / ref.bits} = byte ${byte % 16} of 16-byte chunk ${byte >> 4}; row ${byte >> 7} of memory, ` +
    `chunk ${(byte >> 4) & 7} of the row, bank ${bankOf(byte)}.${moved}`
  );
}

/** The XOR bit by bit, while the chunks move: what is read, what it becomes, where the chunk goes. */
function frameSmem(s, state, t) {
  const { ref, map } = s;
  const kept = state.element >= 0 && state.element < map.size ? state.element : -1;
  const element = kept >= 0 ? kept : Math.max(0, map.phase.findIndex((phase) => phase > 0));
  const [names, before, xor, after] = addressBits(s, element);
  const groups = { 32: 1, 64: 2, 128: 3 }[ref.swizzle];
  const done = Math.floor(Math.min(0.999, Math.max(0, t - 0.1) / 0.75) * (groups + 1)); // bits written
  const width = before[1].length;
  const written = (i) => i < width - 4 - groups || i >= width - 4 || width - 4 - i <= done;
  const show = ([name, bits, marked]) => [name, bits.map((bit, i) => (written(i) ? bit : "·")), marked.filter(written)];
  const plain = map.plain[element] >> 3;
  const from = (plain >> 4) & 7;
  const row = `row ${plain >> 7} of memory`;
  const text = t < 0.1
    ? `The swizzle reads the lowest ${groups} bit${groups > 1 ? "s" : ""} of the row's number (bits 7 to ${6 + groups}) ...`
    : `... and XORs ${groups > 1 ? "them" : "it"} into the chunk's number (bits 4 to ${3 + groups}): in ${row} ` +
      `chunk ${from} goes to ${from} XOR ${map.phase[element]} = ${from ^ map.phase[element]}.`;
  return {
    text: `Element (${Math.floor(element / s.columns)}, ${element % s.columns}). ${text}`,
    marks: [[element], []], bits: [names, before, show(xor), show(after)],
  };
}

/** The bits of the address before, what is XORed, and after; those that the swizzle reads and writes. */
function addressBits({ ref, map }, element) {
  if (!ref.swizzle) return [];
  const width = 13;
  const groups = { 32: 1, 64: 2, 128: 3 }[ref.swizzle];
  const bitsOf = (value) => Array.from({ length: width }, (_, i) => (value >> (width - 1 - i)) & 1);
  const columnsOf = (low) => Array.from({ length: groups }, (_, i) => width - 1 - low - i);
  const [plain, byte] = [map.plain[element] >> 3, map.bits[element] >> 3];
  return [
    ["address bit", Array.from({ length: width }, (_, i) => width - 1 - i), []],
    ["before", bitsOf(plain), columnsOf(7)],
    ["XOR", bitsOf(map.phase[element] << 4), columnsOf(4)],
    ["after", bitsOf(byte), columnsOf(4)],
  ];
}

export const smemSpec = {
  name: "smem",
  label: "Shared memory: where each element lies",
  state: {
    rows: 64, columns: 64, bits: 16, tile_rows: 8, tile_columns: 64, swizzle: 128,
    transposed: false, after: true, colour: "bank", element: -1,
  },
  fields: [
    ...SIZE_FIELDS, ...REF_FIELDS,
    ["colour", "Colour by", [["bank", "bank"], ["chunk", "16-byte chunk"], ["phase", "swizzle phase"], ["tile", "tile"], ["row", "row"]]],
    ["after", "after the swizzle", "check"],
  ],
  animate: "Moves the 16-byte chunks from where they were to where the swizzle puts them",
  study: studySmem,
  point: pointSmem,
  frame: frameSmem,
  pick(s, state, panel, cell) {
    const element = panel === 1 && cell >= s.map.size ? -1 : elementAt(s, panel, cell);
    return { element: element === state.element ? -1 : element };
  },
};

export default { render: (given) => renderView(smemSpec, given) };
