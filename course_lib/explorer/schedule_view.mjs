// Three ways to deal tiles out to SMs, over time: a block per tile, blocks that take turns, and
// blocks that take tiles over. The twin of course_lib/layouts/schedules.py.
import { renderView } from "./kit.mjs";

const WAYS = ["blocks", "persistent", "dynamic"];
const PATTERNS = {
  even: "all the same", triangle: "rising", "heavy-first": "falling", mixed: "mixed",
  "long-last": "the last is long", "every-fourth": "every fourth is long",
};
const MOST_TILES = 48;
const LIMITS = { tiles: [1, MOST_TILES], sms: [1, 8], start: [0, 9], late: [0, 40] };
const TILE_PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
const STARTING = TILE_PALETTE.length; // a block begins
const OTHER = STARTING + 1; // the SM works for another kernel
const PALETTE = [...TILE_PALETTE, "#8c8c8c", "#4a4a4a"];
const STATE_PALETTE = ["#cc79a7", "#56b4e9", "#009e73"]; // claimed, computed now, done
const STATE_WORDS = ["claimed, not begun", "being computed", "done"];

// ---- the model ----

function mixedNumber(i) {
  let mixed = Math.imul(i + 1, 2654435761) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 15), 2246822519) >>> 0;
  return (mixed ^ (mixed >>> 13)) >>> 0;
}

/** How many units of time each tile takes; see schedules.costs. */
export function costsOf(pattern, tiles) {
  const cost = {
    even: () => 4,
    triangle: (i) => 1 + Math.floor((8 * i) / tiles),
    "heavy-first": (i) => 1 + Math.floor((8 * (tiles - 1 - i)) / tiles),
    mixed: (i) => 1 + (mixedNumber(i) % 8),
    "long-last": (i) => (i === tiles - 1 ? 9 : 2),
    "every-fourth": (i) => (i % 4 ? 2 : 6),
  }[pattern];
  if (!cost) throw new Error(`There is no pattern ${pattern}.`);
  return Array.from({ length: tiles }, (_, i) => cost(i));
}

/** Deals the tiles out; see schedules.schedule. */
export function dealOut(way, costs, { sms, start, ahead, late }) {
  const made = way === "persistent" ? inTurn(costs, sms, start, late)
    : asFree(costs, { sms, start, late, steals: way === "dynamic", ahead });
  made.spans.sort((a, b) => a.tile - b.tile);
  made.end = Math.max(...made.spans.map((s) => s.end));
  made.ends = Array.from({ length: sms }, (_, sm) =>
    Math.max(0, ...made.spans.filter((s) => s.sm === sm).map((s) => s.end)));
  made.tail = made.end - Math.min(...made.ends);
  made.work = costs.reduce((a, b) => a + b, 0);
  return made;
}

function inTurn(costs, sms, start, late) {
  const [spans, begins] = [[], []];
  for (let sm = 0; sm < Math.min(sms, costs.length); sm++) {
    let now = sm ? 0 : late;
    begins.push([sm, now, now + start]);
    now += start;
    for (let tile = sm; tile < costs.length; tile += sms) {
      spans.push({ tile, sm, claimed: 0, start: now, end: now + costs[tile], block: sm });
      now += costs[tile];
    }
  }
  return { spans, begins };
}

function asFree(costs, { sms, start, late, steals, ahead }) {
  const [spans, begins] = [[], []];
  let left = 0;
  const next = () => (left < costs.length ? left++ : -1);
  // when; 0: the SM is free, 1: its block goes on; the SM; what is claimed, since when; the block
  const queue = Array.from({ length: sms }, (_, sm) => [sm ? 0 : late, 0, sm, -1, 0, -1]);
  const first = (a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2];
  while (queue.length) {
    queue.sort(first);
    let [now, goesOn, sm, tile, claimed, block] = queue.shift();
    if (tile < 0) [tile, claimed] = [next(), now];
    if (tile < 0) continue;
    if (!goesOn) {
      begins.push([sm, now, now + start]);
      queue.push([now + start, 1, sm, tile, now, tile]);
      continue;
    }
    const end = now + costs[tile];
    spans.push({ tile, sm, claimed, start: now, end, block });
    if (!steals) queue.push([end, 0, sm, -1, 0, -1]);
    else if (!ahead) queue.push([end, 1, sm, -1, 0, block]);
    else {
      const following = next();
      if (following >= 0) queue.push([end, 1, sm, following, now, block]);
    }
  }
  return { spans, begins };
}

// ---- the view ----

const FIELD_NAMES = { tiles: "Tiles", sms: "SMs", start: "Start of a block", late: "SM 0 is free at" };

function checkState(state) {
  for (const [name, [least, most]] of Object.entries(LIMITS)) {
    if (!(state[name] >= least && state[name] <= most)) {
      throw new Error(`${FIELD_NAMES[name]}: give ${least} to ${most}.`);
    }
  }
  if (!WAYS.includes(state.code)) throw new Error(`There is no schedule ${state.code}.`);
}

function studySchedules(state) {
  checkState(state);
  const costs = costsOf(state.pattern, state.tiles);
  const made = WAYS.map((way) => dealOut(way, costs, state));
  const last = Math.max(...made.map((m) => m.end));
  const now = Math.max(0, Math.min(last, state.step));
  return {
    state, costs, made, last, now,
    panels: [workPanel(state, made, last, now), tilePanel(state, costs, made, now)],
    legend: [
      [TILE_PALETTE[0], "a tile, with its number"], [PALETTE[STARTING], "a block starts"],
      [PALETTE[OTHER], "the SM works for another kernel"], ["var(--mgx-empty)", "nothing to do, or not begun"],
      ...STATE_PALETTE.map((colour, i) => [colour, STATE_WORDS[i]]),
    ],
    sentence: sentenceOf(state, made, last, now),
    table: made.map((m, i) => [WAYS[i], rowOf(m, state)]),
    code: scheduleCode(state, costs),
  };
}

function workPanel(state, made, last, now) {
  const { sms, late } = state;
  const value = new Int16Array(WAYS.length * sms * last).fill(-1);
  const words = new Map(); // cell -> the tile's number, where it begins
  made.forEach((m, way) => {
    const at = (sm, t) => (way * sms + sm) * last + t;
    const fill = (sm, from, to, colour) => {
      for (let t = from; t < Math.min(to, now); t++) value[at(sm, t)] = colour;
    };
    fill(0, 0, Math.min(late, last), OTHER);
    for (const [sm, from, to] of m.begins) fill(sm, from, to, STARTING);
    for (const s of m.spans) {
      fill(s.sm, s.start, s.end, s.tile % TILE_PALETTE.length);
      if (s.start < now) words.set(at(s.sm, s.start), String(s.tile));
    }
  });
  return {
    title: "Who works when", rows: WAYS.length * sms, cols: last, value, palette: PALETTE,
    rowTitle: "", colTitle: "units of time", side: 116, shortest: 16, blocks: [sms, last],
    rowName: (r) => `${WAYS[Math.floor(r / sms)]}, SM ${r % sms}`,
    colName: String, label: (i) => words.get(i) ?? "",
  };
}

function tilePanel(state, costs, made, now) {
  const count = costs.length;
  const value = new Int16Array(WAYS.length * count).fill(-1);
  made.forEach((m, way) => m.spans.forEach((s) => {
    value[way * count + s.tile] = now >= s.end ? 2 : now > s.start ? 1 : now > s.claimed ? 0 : -1;
  }));
  return {
    title: "What has become of the tiles, and how long each takes", rows: WAYS.length, cols: count,
    value, palette: STATE_PALETTE, rowTitle: "", colTitle: "tile", side: 116, shortest: 22,
    rowName: (r) => WAYS[r], colName: String, label: (i) => String(costs[i % count]),
  };
}

function sentenceOf(state, made, last, now) {
  const { work } = made[0];
  const [blocks, persistent, dynamic] = made.map((m) => m.end);
  const said = `${state.tiles} tiles on ${state.sms} SMs, ${work} units of work. Done after ${blocks} with a block for ` +
    `each tile, ${persistent} if ${made[1].begins.length} blocks take turns, ${dynamic} if blocks take tiles over.`;
  return now < last ? `After ${now} of ${last} units: ${said}` : said;
}

function rowOf(m, state) {
  const busy = Math.round((100 * m.work) / (m.end * state.sms));
  const starts = `${m.begins.length} block${m.begins.length === 1 ? "" : "s"} started`;
  return `done at ${m.end}; SMs compute ${busy}% of the time; tail: ${m.tail}; ${starts}`;
}

function pointSchedules(s, state, panel, cell) {
  const empty = { marks: [[], []], text: "Point at a tile to see when each schedule computes it. Click on a time to go there." };
  if (panel < 0 || cell < 0) return empty;
  const tile = panel ? cell % s.costs.length : tileAt(s, cell);
  if (tile < 0) return { ...empty, text: idleWords(s, cell) };
  const work = s.made.flatMap((m, way) => {
    const { sm, start, end } = m.spans[tile];
    const row = (way * state.sms + sm) * s.last;
    return Array.from({ length: Math.max(0, Math.min(end, s.now) - start) }, (_, t) => row + start + t);
  });
  const said = s.made.map((m, way) => spanWords(m.spans[tile], WAYS[way])).join("; ");
  const units = `${s.costs[tile]} unit${s.costs[tile] === 1 ? "" : "s"}`;
  return { marks: [work, WAYS.map((_, way) => way * s.costs.length + tile)], text: `Tile ${tile} takes ${units}. ${said}.` };
}

function spanWords({ sm, claimed, start, end, block, tile }, way) {
  const stolen = way === "dynamic" && block !== tile ? `, taken over at ${claimed} by the block of tile ${block}` : "";
  return `${way}: on SM ${sm} from ${start} to ${end}${stolen}`;
}

function tileAt(s, cell) {
  const [row, t] = [Math.floor(cell / s.last), cell % s.last];
  const [way, sm] = [Math.floor(row / s.state.sms), row % s.state.sms];
  const found = s.made[way].spans.find((x) => x.sm === sm && x.start <= t && t < x.end);
  return found && t < s.now ? found.tile : -1;
}

function idleWords(s, cell) {
  const [row, t] = [Math.floor(cell / s.last), cell % s.last];
  const [way, sm] = [Math.floor(row / s.state.sms), row % s.state.sms];
  const where = `${WAYS[way]}, SM ${sm}, unit ${t}`;
  if (t >= s.now) return `${where}: not yet.`;
  if (sm === 0 && t < s.state.late) return `${where}: it works for another kernel.`;
  const begins = s.made[way].begins.some(([m, from, to]) => m === sm && from <= t && t < to);
  return begins ? `${where}: a block starts.` : `${where}: nothing to do.`;
}

function pickSchedules(s, state, panel, cell) {
  return panel === 0 ? { step: (cell % s.last) + 1 } : null;
}

/** A kernel that deals its tiles out like this, and does \`cost\` steps for each of them. */
function scheduleCode({ code, sms }, costs) {
  const tiles = costs.length;
  const loops = {
    blocks: `    work(jax.lax.axis_index("block"))`,
    persistent: `    @plgpu.nd_loop((${tiles},), collective_axes="block")
    def tile(info):
        work(info.index[0])`,
    dynamic: `    @plgpu.dynamic_scheduling_loop(grid_names=("block",))  # Blackwell
    def tile(info):
        work(info.index[0])`,
  };
  return `import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

costs = jnp.array([${costs.join(", ")}], jnp.int32)


def body(cost_gmem, done_gmem):
    def work(i):  # as many steps as tile i costs
        @pl.loop(0, cost_gmem[i])
        def step(s):
            done_gmem[i] = s + 1

${loops[code]}


kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((${tiles},), jnp.int32),
    grid=(${code === "persistent" ? Math.min(sms, tiles) : tiles},),
    grid_names=("block",),
)
`;
}

export const scheduleSpec = {
  name: "schedules",
  label: "Schedules for tiles that take different times",
  state: { tiles: 16, sms: 4, pattern: "every-fourth", start: 1, late: 0, ahead: true, code: "dynamic", step: 999 },
  fields: [
    ["tiles", FIELD_NAMES.tiles, "number"],
    ["pattern", "Times", Object.entries(PATTERNS)],
    ["sms", FIELD_NAMES.sms, "number"],
    ["start", FIELD_NAMES.start, "number"],
    ["late", FIELD_NAMES.late, "number"],
    ["ahead", "dynamic asks one tile ahead", "check"],
    ["code", "Code of", WAYS.map((way) => [way, way])],
  ],
  study: studySchedules,
  point: pointSchedules,
  pick: pickSchedules,
  stacked: true,
  step: "step",
  steps: (study) => study.last + 1,
  play: "Plays it from the beginning, unit by unit",
};

export default { render: (given) => renderView(scheduleSpec, given) };
