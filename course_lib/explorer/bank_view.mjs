// Bank conflicts: a store from a register layout to a ref, wavefront after wavefront.
import { renderView, withThousands } from "./kit.mjs";
import {
  bankUses, checkRef, conflictReason, dtypeOf, layoutCode, memoryMap, namedLayout, pythonTuple, refCode,
  staggerOf, transferOf, transferSummary, viewShape,
} from "./memory.mjs";
import { LAYOUT_FIELD, REF_FIELDS, checkSize, memoryPanel, refOf } from "./shared_fields.mjs";

const FREE = "#56b4e9";
const SHARED = "#009e73";
const CLASH = "#d55e00";
const COLOURS3 = [FREE, SHARED, CLASH];
const IDLE = -1;

function studyBanks(state) {
  checkSize(state.rows, state.columns);
  const shape = [state.rows, state.columns];
  const ref = refOf(state.transposed ? { ...state, rows: state.columns, columns: state.rows } : state);
  checkRef(ref);
  const map = memoryMap(ref);
  const layout = namedLayout(state.register_layout, viewShape(ref), ref.bits);
  const transfer = transferOf(layout, ref, map, state.arch);
  const count = 4 * transfer.turns * transfer.fronts;
  const front = ((state.front % count) + count) % count;
  const at = [Math.floor(front / transfer.fronts / transfer.turns),
    Math.floor(front / transfer.fronts) % transfer.turns, front % transfer.fronts];
  const uses = bankUses(transfer, ...at);
  const s = { ref, map, transfer, count, front, at, uses, lanesOfWord: wordLanes(uses) };
  const memory = paintMemory(s);
  const degree = transfer.degrees[front];
  return {
    ...s, panels: [bankPanel(s, degree), memory],
    legend: [[FREE, "a word of one lane"],
      [SHARED, transfer.form === "column" ? "of several lanes' elements" : "of several lanes: broadcast"],
      [CLASH, "in a bank asked for several words: conflict"], ["var(--mgx-empty)", "not in this wavefront"]],
    sentence: transferSummary(transfer),
    table: [
      ["Wavefront", `${front + 1} of ${withThousands(count)}: warp ${at[0]}, ${whatMoves(transfer, at)}`],
      ["Instruction", { vector: "st.shared", row: "stmatrix", column: "stmatrix.trans" }[transfer.form]],
      ["This wavefront", conflictReason(transfer, ...at)],
      ["Degree", `${degree} here, ${transfer.degree} at worst; ${withThousands(transfer.wavefronts)} ` +
        `wavefronts instead of ${withThousands(transfer.least)}`],
    ],
    code: bankCode(state, ref, shape, transfer),
  };
}

/** "register 3, lanes 0 to 15" of a wavefront. */
function whatMoves({ groups, slotLanes, lanes }, [, turn, front]) {
  const registers = groups[turn];
  const own = [...new Set(slotLanes.slice(front * lanes, (front + 1) * lanes))].sort((a, b) => a - b);
  const straight = own.at(-1) - own[0] === own.length - 1;
  const which = straight ? `lanes ${own[0]} to ${own.at(-1)}` : `lanes ${own[0]}, ${own[1]}, ${own[2]}, ... ${own.at(-1)}`;
  return `register${registers.length > 1 ? "s" : ""} ${registers.join(" and ")}, ${which}`;
}

function wordLanes(uses) {
  const lanes = new Map();
  for (const use of uses) use.words.forEach((word, i) => lanes.set(word, { own: use.lanes[i], clash: use.words.length > 1, bank: use.bank }));
  return lanes;
}

/** The 32 banks, one a row: which lanes ask for which word, the words one after the other. */
function bankPanel({ uses }, degree) {
  const cols = Math.max(2, degree);
  const value = new Int16Array(32 * cols).fill(IDLE);
  const text = new Array(32 * cols).fill("");
  for (const { bank, words, lanes } of uses) {
    words.forEach((word, i) => {
      value[bank * cols + i] = words.length > 1 ? 2 : lanes[i].length > 1 ? 1 : 0;
      text[bank * cols + i] = `lane${lanes[i].length > 1 ? "s" : ""} ${laneLabel(lanes[i])}`;
    });
  }
  return {
    title: "Each bank gives one word at a time: lanes that wait stand further right",
    rows: 32, cols, widest: 110, tallest: 16, value, palette: COLOURS3, label: (i) => text[i],
    rowTitle: "bank", colTitle: "turn", rowName: String, colName: (c) => String(c + 1),
  };
}

function laneLabel(lanes) {
  if (lanes.length <= 4) return lanes.join(" ");
  return `${lanes[0]}..${lanes.at(-1)}`;
}

function paintMemory(s) {
  const { ref, map, lanesOfWord } = s;
  const value = new Int16Array(map.size).fill(IDLE);
  const text = new Map();
  for (const [word, { own, clash }] of lanesOfWord) {
    for (const slot of slotsOfWord(s, word)) {
      value[map.at[slot]] = clash ? 2 : own.length > 1 ? 1 : 0;
      text.set(map.at[slot], laneLabel(own));
    }
  }
  return memoryPanel(ref, map, value, COLOURS3, (i) => text.get(i) ?? "");
}

function pointBanks(s, state, panel, cell) {
  const rowWords = 32;
  if (panel < 0) {
    return { marks: [[], []], text: "Numbers in the cells are lanes. Step through the wavefronts with the buttons, or with Page Up and Page Down; click a place in memory to go to a wavefront that touches it." };
  }
  const cols = s.panels[0].cols;
  if (panel === 0) {
    const bank = Math.floor(cell / cols);
    const use = s.uses.find((u) => u.bank === bank);
    if (!use) return { marks: [[cell], []], text: `Bank ${bank}: no lane asks for it in this wavefront.` };
    const slots = use.words.flatMap((word) => slotsOfWord(s, word));
    return { marks: [use.words.map((_, i) => bank * cols + i), slots], text: describeUse(use) };
  }
  const word = Math.floor((cell * s.ref.bits) / 32);
  const found = s.lanesOfWord.get(word);
  const slots = slotsOfWord(s, word);
  const where = `Word ${word} (bytes ${word * 4} to ${word * 4 + 3}), bank ${word % rowWords}`;
  if (!found) return { marks: [[], slots], text: `${where}: no lane asks for it in this wavefront.` };
  const use = s.uses.find((u) => u.bank === found.bank);
  return { marks: [[found.bank * cols + use.words.indexOf(word)], slots], text: `${where}. ${describeUse(use)}` };
}

function slotsOfWord({ ref, map }, word) {
  const per = Math.max(1, 32 / ref.bits);
  const first = (word * 32) / ref.bits;
  return Array.from({ length: per }, (_, i) => first + i).filter((slot) => slot < map.size);
}

function describeUse({ bank, words, lanes }) {
  const who = words.map((word, i) => `word ${word} by lane${lanes[i].length > 1 ? "s" : ""} ${lanes[i].join(", ")}`);
  const end = words.length > 1 ? `: ${words.length} turns` : lanes[0].length > 1 ? ": one turn, a broadcast" : ": one turn";
  return `Bank ${bank} is asked for ${who.join("; ")}${end}.`;
}

/** Loads the registers from the ref and stores them back, as JAX does both. */
function bankCode(state, ref, shape, transfer) {
  const dtype = dtypeOf(ref.bits);
  const view = ref.permutation ? "x_smem.transpose((1, 0))" : "x_smem";
  const refused = transfer.degree > 1 && !staggerOf(transfer);
  const store = refused ? `plgpu.store(view, x, optimized=False)  # has bank conflicts` : "view[...] = x";
  if (transfer.splat) return "";
  return `import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

layout = ${layoutCode(state.register_layout, shape, ref.bits)}

def body(x_gmem, o_gmem, x_smem, barrier):
    plgpu.copy_gmem_to_smem(x_gmem, x_smem, barrier)
    plgpu.barrier_wait(barrier)
    view = ${view}
    x = plgpu.load(view, layout=layout, optimized=False)
    ${store}
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(x_smem, o_gmem)
    plgpu.wait_smem_to_gmem(0)

kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct(${pythonTuple(ref.shape)}, jnp.${dtype}),
    scratch_types=dict(
        x_smem=${refCode(ref, dtype)},
        barrier=plgpu.Barrier(),
    ),
)
x = jax.random.normal(jax.random.key(0), ${pythonTuple(ref.shape)}).astype(jnp.${dtype})
`;
}

export const bankSpec = {
  name: "banks",
  label: "Bank conflicts: how a store from registers to shared memory goes",
  state: {
    register_layout: "WGMMA", rows: 64, columns: 64, bits: 16, tile_rows: 8, tile_columns: 64, swizzle: 128,
    transposed: false, arch: "sm_90a", front: 0,
  },
  fields: [
    LAYOUT_FIELD,
    ["rows", "Rows", "number"],
    ["columns", "Columns", "number"],
    ["bits", "Element", [[8, "8 bits"], [16, "16 bits"], [32, "32 bits"]]],
    ...REF_FIELDS,
    ["arch", "GPU", [["sm_90a", "Hopper"], ["sm_100a", "Blackwell"]]],
  ],
  step: "front",
  steps: (s) => s.count,
  study: studyBanks,
  point: pointBanks,
  pick(s, state, panel, cell) {
    if (panel !== 1) return null;
    const word = Math.floor((cell * s.ref.bits) / 32);
    const { words, lanes, perSlot } = s.transfer;
    const place = words.indexOf(word);
    return place < 0 ? null : { front: Math.floor(place / perSlot / lanes) };
  },
};

export default { render: (given) => renderView(bankSpec, given) };
