// The wave view: steps through the waves of blocks that compute C = A @ B, and counts what
// each of them reads. All numbers come from layouts.mjs, here on the client.
//
// `render({model, el})` is anywidget's; the model may be anything with get, set, on, off and
// save_changes. The state is plain: see STATE.
import {
  assign,
  bytesInWords,
  checkCluster,
  clustered,
  footprint,
  inputBytes,
  l2Run,
  quantization,
  range,
  residency,
  sizes,
  tileCosts,
  totalTraffic,
  waves,
  withCommas,
} from "./layouts.mjs";

const MIB = 2 ** 20;
const STATE = [
  "m", "n", "k", "tile_m", "tile_n", "tile_k", "itemsize", "out_itemsize",
  "order", "width", "minor_dim", "persistent", "dynamic", "spread", "concurrent", "per_sm",
  "cluster_m", "cluster_n", "smem_bytes", "threads", "registers", "l2_bytes", "count_c", "wave",
];
const MAX_SIDE = 256; // tiles along M or N: more could not be told apart on a screen
const PLAY_MS = 700;

// ---- the numbers of a state ----

/** Everything that is shown, from the state alone. Throws an Error whose message is a sentence. */
export function study(state) {
  checkNumbers(state);
  const mm = { ...state };
  const blocks = state.cluster_m * state.cluster_n;
  const resident = checkResidency(state);
  checkCluster(state.m, state.n, state.cluster_m, state.cluster_n);
  if (state.concurrent % blocks) {
    throw new Error(`${state.concurrent} blocks at a time are no whole number of clusters of ${blocks}.`);
  }
  const order = inOrder(state, state.order);
  const waveList = waves(order, state.concurrent);
  const run = l2Run(mm, waveList, state.l2_bytes, state.count_c, blocks);
  const soFar = footprintsSoFar(waveList);
  const { a_bytes, b_bytes } = sizes(mm);
  return {
    state, mm, order, waves: waveList, run, soFar, blocks, resident,
    rank: rankOf(order, state),
    ...schedules(order.length, state),
    quant: quantization(order.length, state.concurrent),
    least_bytes: a_bytes + b_bytes,
    all: totalTraffic(run.map((w) => w.traffic)),
    row_major: totalTraffic((state.order === "row-major" ? run : rowMajorRun(mm, state)).map((w) => w.traffic)),
  };
}

function inOrder(state, kind) {
  const order = { kind, width: state.width, minor_dim: state.minor_dim };
  return clustered(order, state.m, state.n, state.cluster_m, state.cluster_n);
}

/** Who computes each tile and when: as launched, and both ways to hand out tiles. */
function schedules(count, state) {
  const costs = tileCosts(count, state.spread);
  const blocks = state.cluster_m * state.cluster_n;
  const inTurn = assign(costs, state.concurrent, false, blocks);
  const asFree = state.spread ? assign(costs, state.concurrent, true, blocks) : inTurn;
  return { inTurn, asFree, chosen: state.persistent && !state.dynamic ? inTurn : asFree };
}

/** How many blocks an SM could hold; throws an Error if that is fewer than it is to hold. */
function checkResidency(state) {
  const fits = residency(state);
  if (state.concurrent % state.per_sm) {
    throw new Error(`${state.concurrent} blocks at a time are no whole number of SMs with ${state.per_sm} each.`);
  }
  if (state.per_sm > fits.blocks) {
    throw new Error(`${state.per_sm} blocks do not fit on an SM: its ${fits.limit} allow${fits.limit === "shared memory" ? "s" : ""} ${fits.blocks}.`);
  }
  return fits;
}

/** The footprint of each wave together with all waves before it. */
function footprintsSoFar(waveList) {
  const [rows, columns] = [new Set(), new Set()];
  let tiles = 0; // an order has every tile once
  return waveList.map((wave) => {
    for (const [mi, ni] of wave) {
      rows.add(mi);
      columns.add(ni);
    }
    tiles += wave.length;
    return { a_rows: rows.size, b_columns: columns.size, c_tiles: tiles };
  });
}

function rowMajorRun(mm, state) {
  const waveList = waves(inOrder(state, "row-major"), state.concurrent);
  return l2Run(mm, waveList, state.l2_bytes, state.count_c, state.cluster_m * state.cluster_n);
}

/** rank[mi][ni] is the tile's place in the order. */
function rankOf(order, state) {
  const rank = range(state.m).map(() => new Array(state.n).fill(0));
  order.forEach(([mi, ni], i) => {
    rank[mi][ni] = i;
  });
  return rank;
}

function checkNumbers(state) {
  for (const name of ["m", "n", "k", "tile_m", "tile_n", "tile_k", "width", "concurrent", "per_sm", "threads",
    "cluster_m", "cluster_n"]) {
    if (!Number.isInteger(state[name]) || state[name] < 1) {
      throw new Error(`${NAMES[name]}: it must be a whole number from 1 up.`);
    }
  }
  for (const name of ["m", "n"]) {
    if (state[name] > MAX_SIDE) throw new Error(`${NAMES[name]}: at most ${MAX_SIDE} fit here.`);
  }
  if (!(state.l2_bytes >= 0)) throw new Error("L2 size: 0 stands for no cache, less does not exist.");
}

const NAMES = {
  m: "Tile rows (m)",
  n: "Tile columns (n)",
  k: "Steps along K",
  tile_m: "tile_m",
  tile_n: "tile_n",
  tile_k: "tile_k",
  width: "Width",
  concurrent: "SMs",
  per_sm: "Blocks per SM",
  threads: "Lanes of a block",
  cluster_m: "Cluster: blocks above each other",
  cluster_n: "Cluster: blocks beside each other",
};

// ---- words ----

/** One wave in a sentence or three; the text form of the picture. */
export function describe(s, wave) {
  const touched = footprint(s.waves[wave]);
  const traffic = s.run[wave].traffic;
  const inputs = touched.a_rows + touched.b_columns;
  return (
    `${cap(waveWord(s.state))} ${wave + 1} of ${s.waves.length} computes ` +
    `${count(s.waves[wave].length, "tile")} of C. It reads ${count(touched.a_rows, "tile row")} of A ` +
    `and ${count(touched.b_columns, "tile column")} of B: ${inputs} distinct, ` +
    `${bytesInWords(inputBytes(s.mm, touched))}, of which ` +
    `${bytesInWords(traffic.compulsory_bytes + traffic.capacity_bytes)} come from HBM.`
  );
}

/** All waves together, against the least possible and against row-major order. */
export function conclude(s) {
  const mine = s.all.compulsory_bytes + s.all.capacity_bytes;
  const rowMajor = s.row_major.compulsory_bytes + s.row_major.capacity_bytes;
  const against = s.state.order === "row-major" ? "" :
    ` Row-major order: ${bytesInWords(rowMajor)}.`;
  const { last, concurrent } = s.quant;
  const word = waveWord(s.state);
  const tail = last === concurrent ? `The last ${word} is full.` :
    `The last ${word} computes ${last} instead of ${concurrent}: ` +
    `${Math.round(s.quant.busy * 100)}% of all places have work.`;
  return (
    `All of it reads ${bytesInWords(mine)} from HBM; reading every byte of A and B once would be ` +
    `${bytesInWords(s.least_bytes)}.${against} ${tail}${together(s)}${timing(s)}`
  );
}

/** What clusters change: the bytes that leave L2, since each asks once for what it shares. */
function together(s) {
  if (s.blocks === 1) return "";
  const { a_tile_bytes, b_tile_bytes } = sizes(s.mm);
  const alone = s.state.m * s.state.n * s.state.k * (a_tile_bytes + b_tile_bytes);
  return (
    ` In clusters of ${s.state.cluster_m} x ${s.state.cluster_n} L2 sends ${bytesInWords(requestBytes(s.all))}, ` +
    `without them ${bytesInWords(alone)}.`
  );
}

function requestBytes(t) {
  return t.hit_bytes + t.compulsory_bytes + t.capacity_bytes;
}

/** How long it takes if tiles cost differently, in times of the cheapest. */
function timing({ state, inTurn, asFree }) {
  if (!state.spread) return "";
  const [turns, free] = [inTurn, asFree].map(({ end }) => Math.max(...end).toFixed(1));
  return (
    ` Tiles take 1 to ${1 + state.spread / 100}: done after ${free} if each goes to the block that is free ` +
    `first, after ${turns} if the blocks take turns.`
  );
}

/** What fits on an SM, and how much of an SM is used. */
export function describeSms({ state, resident }) {
  const { concurrent, per_sm: each } = state;
  const limit = resident.limit === "blocks" ? "the most there can be" : `limited by its ${resident.limit}`;
  return (
    `${count(concurrent / each, "SM")} with ${count(each, "block")} each: ${count(concurrent, "block")} at a ` +
    `time. ${count(resident.blocks, "such block")} would fit on an SM: ${limit}.`
  );
}

function waveWord(state) {
  return state.persistent ? "step" : "wave";
}

function count(number, noun) {
  return `${withCommas(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function cap(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function percent(part, whole) {
  return `${Math.round((100 * part) / whole)}%`;
}

function inspectTile(s, wave, [mi, ni]) {
  const i = s.rank[mi][ni];
  const { concurrent } = s.state;
  const its = Math.floor(i / concurrent);
  const row = s.waves[its].filter(([r]) => r === mi).length - 1;
  const column = s.waves[its].filter(([, c]) => c === ni).length - 1;
  const block = s.chosen.worker[i];
  const spent = s.state.spread ? `, from ${s.chosen.start[i].toFixed(2)} to ${s.chosen.end[i].toFixed(2)}` : "";
  const who = s.state.dynamic && s.state.persistent
    ? `block ${block} takes it as number ${i}${spent}`
    : s.state.persistent
      ? `block ${block} computes it in step ${its + 1}${spent}`
      : `block ${i} computes it, in wave ${its + 1}${spent}`;
  const when = its === wave ? "" : its < wave ? " (done)" : " (later)";
  return (
    `Tile (${mi}, ${ni}): ${who}${when}. Row ${mi} of A is read by ${count(row, "other block")} ` +
    `of that ${waveWord(s.state)}, column ${ni} of B by ${column}.${ofCluster(s, i)}`
  );
}

/** Which block of which cluster the i-th block of the order is, and what it loads. */
function ofCluster(s, i) {
  if (s.blocks === 1) return "";
  const { cluster_m: down, cluster_n: across } = s.state;
  const place = i % s.blocks;
  const share = (of) => (of === 1 ? "all" : `1/${of}`);
  return (
    ` It is block (${Math.floor(place / across)}, ${place % across}) of its cluster, and loads ` +
    `${share(across)} of each tile of A and ${share(down)} of each of B.`
  );
}

function inspectBand(s, wave, matrix, index) {
  const held = s.run[wave][matrix === "A" ? "held_a" : "held_b"][index];
  const axis = matrix === "A" ? 0 : 1;
  const readers = s.waves[wave].filter((tile) => tile[axis] === index).length;
  return (
    `${matrix === "A" ? "Tile row" : "Tile column"} ${index} of ${matrix}: ` +
    `${count(readers, "block")} of this ${waveWord(s.state)} read it. After it, the L2 cache holds ` +
    `${held} of its ${s.mm.k} tiles.`
  );
}

// ---- code ----

/** A kernel that writes down which block computes which tile, in this order. */
export function waveCode(state) {
  const { order, width, minor_dim: minor, concurrent, cluster_m: down = 1, cluster_n: across = 1 } = state;
  const blocks = down * across;
  const [m, n] = [state.m / down, state.n / across]; // what the grid counts: clusters
  const tuple = (items) => `(${items.join(", ")}${items.length === 1 ? "," : ""})`;
  const quoted = (names) => tuple(names.map((name) => `"${name}"`));
  const snake = `mi, ni = plgpu.planar_snake(i, (${m}, ${n}), ${minor}, ${width})`;
  const head = `import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

`;
  const dynamic = state.dynamic && state.persistent;
  // JAX's dynamic loop makes the blocks of one row and one column of a cluster meet, and not all
  // of a cluster with two axes. So there the cluster has one axis.
  const inCluster = blocks === 1 ? "" : dynamic ? `
    cluster=(${blocks},),
    cluster_names=("cluster",),` : `
    cluster=(${down}, ${across}),
    cluster_names=("cluster_m", "cluster_n"),`;
  const launch = (body, grid, names) => `${head}${body}

kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((${state.m}, ${state.n}), jnp.int32),
    grid=${tuple(grid)},
    grid_names=${quoted(names)},${inCluster}
)
`;
  const where = dynamic
    ? `row, column = divmod(jax.lax.axis_index("cluster"), ${across})`
    : 'row, column = jax.lax.axis_index("cluster_m"), jax.lax.axis_index("cluster_n")';
  const write = (depth, target, number) => {
    const line = (who) => `${target}[mi, ni] = ${who}  # compute tile (mi, ni) of C here`;
    if (blocks === 1) return line(number);
    const indent = " ".repeat(depth);
    return `${where}  # which block of the cluster
${indent}cluster = ${number}
${indent}mi, ni = mi * ${down} + row, ni * ${across} + column
${indent}${line(`cluster * ${blocks} + row * ${across} + column`)}`;
  };
  if (state.persistent && !state.dynamic) {
    const flat = order === "snake";
    const sizes = flat ? tuple([m * n]) : `(${m}, ${n})`;
    const tiling = order === "tiled" ? `, tiling=(${width}, 1)` : "";
    const index = flat ? `(i,) = info.index\n        ${snake}` : "mi, ni = info.index";
    return launch(`def body(block_gmem):
    @plgpu.nd_loop(${sizes}, collective_axes="sm"${tiling})
    def tile(info):
        ${index}
        ${write(8, "block_gmem", 'jax.lax.axis_index("sm")')}`, [concurrent / blocks], ["sm"]);
  }
  const [grid, names, index, number] = {
    "row-major": [[m, n], ["m", "n"], "mi, ni = m, n", `m * ${n} + n`],
    tiled: [[Math.floor(m / width), n, width], ["outer", "n", "inner"], `mi, ni = outer * ${width} + inner, n`,
      `(outer * ${n} + n) * ${width} + inner`],
    snake: [[m * n], ["i"], snake, "i"],
  }[order];
  if (dynamic) { // Blackwell
    const axes = blocks === 1 ? "" : ', cluster_axes=("cluster",)';
    return launch(`def body(number_gmem):
    @plgpu.dynamic_scheduling_loop(grid_names=${quoted(names)}${axes})
    def tile(info):  # Blackwell: a block that is done takes the tile of one that has not begun
        ${names.join(", ")}${names.length === 1 ? "," : ""} = info.index
        ${index}
        ${write(8, "number_gmem", number)}`, grid, names);
  }
  const axes = names.map((name) => `jax.lax.axis_index("${name}")`).join(", ");
  return launch(`def body(block_gmem):
    ${names.join(", ")} = ${axes}
    ${index}
    ${write(4, "block_gmem", number)}`, grid, names);
}

/** To the clipboard; a page from a file has none of its own. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

// ---- the picture ----

/** Where A, B and C lie on a canvas `width` CSS pixels wide. */
function geometry(state, width) {
  const band = Math.max(28, Math.min(64, width * 0.14));
  const gap = 10;
  const head = 16; // the names above and beside the matrices
  const room = width - band - gap - head - 2;
  const side = Math.max(1, Math.min(30, Math.floor(room / state.n), Math.floor(460 / state.m)));
  const left = head + band + gap;
  const top = head + band + gap;
  return {
    side, band, left, top, head,
    width: left + side * state.n + 2,
    height: top + side * state.m + 2,
  };
}

/** Everything but the cursor, on a canvas of its own: pointing paints only that. */
function paintBase(cssWidth, s, wave, colours) {
  const g = geometry(s.state, cssWidth);
  const dpr = window.devicePixelRatio || 1;
  const canvas = new OffscreenCanvas(Math.round(cssWidth * dpr), Math.round(g.height * dpr));
  const ctx = canvas.getContext("2d");
  ctx.scale(dpr, dpr);
  ctx.fillStyle = colours.back;
  ctx.fillRect(0, 0, cssWidth, g.height);
  paintNames(ctx, g, s, colours);
  if (g.side < PLAIN_SIDE) paintPlainC(ctx, g, s, wave, colours);
  else paintC(ctx, g, s, wave, colours);
  if (s.blocks > 1 && g.side >= PLAIN_SIDE) paintClusters(ctx, g, s.state, colours);
  const touched = [0, 1].map((axis) => new Set(s.waves[wave].map((tile) => tile[axis])));
  for (const mi of range(s.state.m)) {
    const held = s.run[wave].held_a[mi] / s.mm.k;
    const box = [g.head, g.top + mi * g.side, g.band, g.side];
    paintBand(ctx, box, "row", touched[0].has(mi) ? colours.a : null, held, colours);
  }
  for (const ni of range(s.state.n)) {
    const held = s.run[wave].held_b[ni] / s.mm.k;
    const box = [g.left + ni * g.side, g.head, g.side, g.band];
    paintBand(ctx, box, "column", touched[1].has(ni) ? colours.b : null, held, colours);
  }
  return { canvas, g, dpr };
}

/** The base, and the cursor on it. */
function paint(canvas, { canvas: base, g, dpr }, s, cursor, colours) {
  if (canvas.width !== base.width || canvas.height !== base.height) {
    canvas.width = base.width;
    canvas.height = base.height;
    canvas.style.height = `${g.height}px`;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.drawImage(base, 0, 0);
  ctx.scale(dpr, dpr);
  if (cursor) paintCursor(ctx, g, s, cursor, colours);
}

const PLAIN_SIDE = 5; // CSS pixels: below, a tile is a dot without a border

/** Tiles too small for borders and numbers: a pixel each, made larger. */
function paintPlainC(ctx, g, s, wave, colours) {
  const { m, n, concurrent } = s.state;
  const [now, done, later] = [colours.now, colours.done, colours.later].map((colour) =>
    [1, 3, 5].reduce((all, at, i) => all | (parseInt(colour.slice(at, at + 2), 16) << (8 * i)), 255 << 24));
  const image = new ImageData(n, m);
  const pixels = new Uint32Array(image.data.buffer); // little-endian: red lies first
  s.order.forEach(([mi, ni], i) => {
    const its = Math.floor(i / concurrent);
    pixels[mi * n + ni] = its === wave ? now : its < wave ? done : later;
  });
  const small = new OffscreenCanvas(n, m);
  small.getContext("2d").putImageData(image, 0, 0);
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(small, g.left, g.top, g.side * n, g.side * m);
}

/** A frame around the tiles of each cluster. */
function paintClusters(ctx, g, { m, n, cluster_m: down, cluster_n: across }, colours) {
  ctx.fillStyle = colours.ink;
  const [wide, high] = [g.side * n, g.side * m];
  for (let mi = 0; mi <= m; mi += down) ctx.fillRect(g.left - 1, g.top + mi * g.side - 1, wide + 1, 1.5);
  for (let ni = 0; ni <= n; ni += across) ctx.fillRect(g.left + ni * g.side - 1, g.top - 1, 1.5, high + 1);
}

function paintNames(ctx, g, s, colours) {
  ctx.fillStyle = colours.muted;
  ctx.font = "12px sans-serif";
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "left";
  ctx.fillText("B", g.left, g.head - 4);
  ctx.fillText("A", g.head, g.top - 4);
  ctx.fillText("C", g.left - 10, g.top - 2);
}

function paintC(ctx, g, s, wave, colours) {
  const { m, n, concurrent } = s.state;
  const inset = g.side > 6 ? 1 : 0.5;
  const size = labelSize(s, g.side);
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  for (const mi of range(m)) {
    for (const ni of range(n)) {
      const i = s.rank[mi][ni];
      const its = Math.floor(i / concurrent);
      const [x, y] = [g.left + ni * g.side, g.top + mi * g.side];
      ctx.fillStyle = its === wave ? colours.now : its < wave ? colours.done : colours.later;
      ctx.fillRect(x, y, g.side - inset, g.side - inset);
      if (!size) continue;
      const label = String(s.state.persistent ? s.chosen.worker[i] : i);
      ctx.font = `${its === wave ? "bold " : ""}${size}px sans-serif`;
      ctx.fillStyle =
        its === wave ? colours.nowInk : its < wave ? colours.doneInk : colours.muted;
      ctx.fillText(label, x + (g.side - inset) / 2, y + g.side / 2);
    }
  }
}

/** The size of the numbers in the tiles, in pixels; 0 where the longest would not fit. */
function labelSize(s, side) {
  const most = s.state.persistent ? s.state.concurrent : s.order.length;
  const digits = String(most - 1).length;
  const size = Math.min(12, side * 0.5, (side - 2) / (0.6 * digits));
  return size < 6 ? 0 : size;
}

/** A tile row of A or column of B; a strip along it shows how much of it is in L2. */
function paintBand(ctx, [x, y, w, h], direction, fill, held, colours) {
  const inset = Math.min(w, h) > 6 ? 1 : 0.5;
  ctx.fillStyle = fill ?? colours.later;
  ctx.fillRect(x, y, w - inset, h - inset);
  const strip = Math.max(1, Math.min(5, Math.min(w, h) * 0.25));
  ctx.fillStyle = colours.l2;
  if (direction === "row") ctx.fillRect(x, y + h - inset - strip, (w - inset) * held, strip);
  else ctx.fillRect(x + w - inset - strip, y, strip, (h - inset) * held);
}

function paintCursor(ctx, g, s, cursor, colours) {
  ctx.strokeStyle = colours.ink;
  ctx.lineWidth = 2;
  const outline = (x, y, w, h) => ctx.strokeRect(x + 0.5, y + 0.5, w - 2, h - 2);
  const { side, left, top, head, band } = g;
  if (cursor.c) {
    const [mi, ni] = cursor.c;
    outline(left + ni * side, top + mi * side, side, side);
    outline(head, top + mi * side, band, side);
    outline(left + ni * side, head, side, band);
  } else if (cursor.a !== undefined) {
    outline(head, top + cursor.a * side, left - head + s.state.n * side, side);
  } else {
    outline(left + cursor.b * side, head, side, top - head + s.state.m * side);
  }
}

/** What lies under a point: {c: [mi, ni]}, {a: mi}, {b: ni} or null. */
function hitTest(g, state, x, y) {
  const ni = Math.floor((x - g.left) / g.side);
  const mi = Math.floor((y - g.top) / g.side);
  const inRows = mi >= 0 && mi < state.m;
  const inColumns = ni >= 0 && ni < state.n;
  if (inRows && inColumns) return { c: [mi, ni] };
  if (inRows && x >= g.head && x < g.head + g.band) return { a: mi };
  if (inColumns && y >= g.head && y < g.head + g.band) return { b: ni };
  return null;
}

/** The most bytes that one wave reads from HBM. */
function mostRead(s) {
  return s.run.reduce((most, { traffic: t }) =>
    Math.max(most, t.compulsory_bytes + t.capacity_bytes), 0);
}

/** HBM reads of every wave as bars, the current one marked. */
function paintBars(canvas, s, wave, colours) {
  const [width, height] = [canvas.clientWidth || 320, 76];
  const dpr = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * dpr);
  canvas.height = Math.round(height * dpr);
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(dpr, dpr);
  ctx.fillStyle = colours.back;
  ctx.fillRect(0, 0, width, height);
  const base = height - 6;
  const most = Math.max(1, mostRead(s));
  const step = width / s.run.length;
  s.run.forEach(({ traffic: t }, w) => {
    const gap = step > 4 ? 1.5 : 0;
    const first = (t.compulsory_bytes / most) * (base - 8);
    const again = (t.capacity_bytes / most) * (base - 8);
    ctx.fillStyle = colours.first;
    ctx.fillRect(w * step, base - first, step - gap, first);
    ctx.fillStyle = colours.again;
    ctx.fillRect(w * step, base - first - again, step - gap, again);
    if (w === wave) {
      ctx.fillStyle = colours.ink;
      ctx.fillRect(w * step, base + 2, Math.max(2, step - gap), 3);
    }
  });
  ctx.fillStyle = colours.line;
  ctx.fillRect(0, base, width, 1);
}

// ---- colours and themes ----

function isDark() {
  const lab = document.body.dataset.jpThemeLight;
  if (lab) return lab === "false";
  const { classList } = document.body;
  if (classList.contains("vscode-dark") || classList.contains("vscode-high-contrast")) return true;
  if (classList.contains("vscode-light")) return false;
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function readColours(root) {
  const dark = isDark();
  root.classList.toggle("mgw-dark", dark);
  const bare = !document.body.dataset.jpThemeLight && !/vscode/.test(document.body.className);
  if (bare) {
    root.style.setProperty("--mgw-ink", dark ? "#eef1f4" : "#1b1f24");
    root.style.setProperty("--mgw-muted", dark ? "#aab4be" : "#57606a");
    root.style.setProperty("--mgw-back", dark ? "#14181d" : "#ffffff");
    root.style.setProperty("--mgw-line", dark ? "#57606a" : "#b6bcc3");
  }
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--mgw-${name}`).trim();
  return {
    ink: read("ink"), muted: read("muted"), back: read("back"), line: read("line"),
    now: read("now"), nowInk: read("now-ink"), done: read("done"), doneInk: read("done-ink"),
    a: read("a"), b: read("b"), l2: read("l2"), first: read("first"), again: read("again"),
    later: dark ? "#2a3036" : "#eceff2",
  };
}

// ---- the page ----

let serial = 0; // makes the ids of several views on one page differ

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const FIELDS = [
  ["order", "Order", ["row-major", "tiled", "snake"],
    ["row-major: (m, n)", "tiled: (m // mt, n, mt)", "planar_snake"]],
  ["width", "Width"],
  ["minor_dim", "Minor dimension", ["0", "1"], ["0: bands of rows", "1: bands of columns"]],
  ["launch", "Launch", ["blocks", "persistent", "dynamic"],
    ["a block per tile", "persistent (nd_loop)", "dynamic (dynamic_scheduling_loop)"]],
  ["sms", "SMs"],
  ["per_sm", "Blocks per SM"],
  ["cluster_m", "Cluster: above"],
  ["cluster_n", "Cluster: beside"],
  ["m", "Tile rows (m)"],
  ["n", "Tile columns (n)"],
  ["l2_mib", "L2 size in MiB"],
];
const MORE_FIELDS = [
  ["k", "Steps along K"],
  ["tile_m", "tile_m"],
  ["tile_n", "tile_n"],
  ["tile_k", "tile_k"],
  ["itemsize", "Bytes per element", ["1", "2", "4"], ["1: float8, int8", "2: bfloat16, float16", "4: float32"]],
  ["spread", "Cost of tiles: up to % more"],
  ["smem_kib", "SMEM of a block in KiB"],
  ["threads", "Lanes of a block"],
  ["registers", "Registers of a lane (0: unknown)"],
];

const FROM_ZERO = ["l2_mib", "smem_kib", "spread", "registers"];

function field([name, label, values, texts]) {
  const attributes = { name, "aria-label": label };
  const input = values
    ? element("select", attributes, ...values.map((v, i) => element("option", { value: v }, texts[i])))
    : element("input", { ...attributes, type: "number", min: FROM_ZERO.includes(name) ? "0" : "1",
      step: ["l2_mib", "smem_kib"].includes(name) ? "any" : "1" });
  const caption = element("span", {}, label);
  return element("label", {}, caption, input);
}

const LEGEND = [
  ["now", "computed now"],
  ["done", "computed before"],
  ["a", "rows of A read now"],
  ["b", "columns of B read now"],
  ["l2", "strip: share in L2 afterwards"],
];
const BAR_LEGEND = [
  ["first", "read for the first time"],
  ["again", "read before, evicted since"],
];

function legend(entries) {
  return element("ul", { class: "mgw-legend" }, ...entries.map(([colour, text]) => {
    const swatch = element("span", { class: "mgw-swatch" });
    swatch.style.background = `var(--mgw-${colour})`;
    return element("li", {}, swatch, text);
  }));
}

function build(el, linked) {
  const id = `mgw-${(serial += 1)}`;
  const ui = { id };
  ui.fields = Object.fromEntries(
    [...FIELDS, ...MORE_FIELDS].map((spec) => [spec[0], field(spec)]),
  );
  const countC = element("input", { type: "checkbox", name: "count_c" });
  ui.fields.count_c = element("label", { class: "mgw-check" }, countC, "tiles of C take room in L2");
  const pick = (specs) => specs.map(([name]) => ui.fields[name]);
  ui.error = element("p", { class: "mgw-error", role: "alert" });
  ui.canvas = element("canvas", {
    class: "mgw-canvas", tabindex: "0", role: "application",
    "aria-describedby": `${id}-inspector`,
    "aria-label": "The tiles of A, B and C. Arrow keys move over the tiles of C.",
  });
  ui.inspector = element("p", { class: "mgw-inspector", id: `${id}-inspector`, role: "status" });
  ui.buttons = {
    first: ["|◀", "First wave (Home)"],
    back: ["◀", "Previous wave (Page Up)"],
    play: ["▶ play", "Play or pause (Space)"],
    next: ["▶", "Next wave (Page Down)"],
    last: ["▶|", "Last wave (End)"],
  };
  for (const [name, [text, label]] of Object.entries(ui.buttons)) {
    ui.buttons[name] = element("button", { type: "button", "aria-label": label, title: label }, text);
  }
  ui.slider = element("input", { type: "range", min: "1", step: "1", "aria-label": "Wave" });
  ui.where = element("span", { class: "mgw-where" });
  ui.summary = element("p", { class: "mgw-summary", "aria-live": "polite" });
  ui.table = element("table");
  ui.bars = element("canvas", { class: "mgw-bars", role: "img" });
  ui.sentence = element("p", { class: "mgw-sentence" });
  ui.sms = element("p", { class: "mgw-sentence mgw-sms" });
  ui.scale = element("p", { class: "mgw-scale" });
  ui.code = element("pre", { class: "mgw-code" });
  ui.said = element("span", { class: "mgw-said", role: "status" });
  ui.tools = {};
  for (const [name, text, title] of [["copy", "Copy plgpu code", "Copies a kernel with this grid order"],
    ["link", "Copy link", "Copies a link that restores this view"], ["png", "Save PNG", "Saves the picture"]]) {
    if (name !== "link" || linked) ui.tools[name] = element("button", { type: "button", title }, text);
  }
  const colours = legend(LEGEND);
  ui.nowText = element("span");
  colours.firstChild.append(ui.nowText);
  ui.main = element("div", { class: "mgw-main" },
    element("div", { class: "mgw-picture" }, ui.canvas, colours, ui.inspector),
    element("div", { class: "mgw-numbers" }, ui.table, ui.sentence, ui.sms, ui.scale, ui.bars, legend(BAR_LEGEND)));
  ui.root = element(
    "section",
    { class: "mgw", "aria-label": "Waves of blocks over C = A @ B", "data-lm-suppress-shortcuts": "true" },
    element("fieldset", {}, element("legend", {}, "Order and sizes"), ...pick(FIELDS)),
    element("details", {}, element("summary", {}, "Sizes of tiles, what they cost, what a block needs"),
      element("fieldset", {}, element("legend", {}, "Sizes of tiles"), ...pick(MORE_FIELDS),
        ui.fields.count_c)),
    ui.error,
    element("div", { class: "mgw-transport" }, ...Object.values(ui.buttons), ui.slider, ui.where),
    ui.summary,
    ui.main,
    element("div", { class: "mgw-transport mgw-tools" }, ...Object.values(ui.tools), ui.said),
    element("details", {}, element("summary", {}, "The same as plgpu code"), ui.code),
  );
  el.append(ui.root);
  return ui;
}

function tableRows(s, wave) {
  const now = { touched: footprint(s.waves[wave]), t: s.run[wave].traffic };
  const upTo = (last) => ({
    touched: s.soFar[last],
    t: totalTraffic(s.run.slice(0, last + 1).map((w) => w.traffic)),
  });
  const columns = [now, upTo(wave), upTo(s.waves.length - 1)];
  const row = (name, value, kind = "") => [name, columns.map(value), kind];
  const requests = ({ t }) => t.hits + t.compulsory + t.capacity;
  return [
    row("A tile rows", (c) => withCommas(c.touched.a_rows)),
    row("B tile columns", (c) => withCommas(c.touched.b_columns)),
    row("Together", (c) => withCommas(c.touched.a_rows + c.touched.b_columns), "strong"),
    row("In bytes", (c) => bytesInWords(inputBytes(s.mm, c.touched))),
    row("Requests", (c) => withCommas(requests(c)), "rule"),
    row("Out of L2", (c) => bytesInWords(requestBytes(c.t))),
    row("Hits", (c) => withCommas(c.t.hits)),
    row("Hit rate", (c) => percent(c.t.hits, requests(c))),
    row("First reads", (c) => withCommas(c.t.compulsory)),
    row("Evicted before", (c) => withCommas(c.t.capacity)),
    row("From HBM", (c) => bytesInWords(c.t.compulsory_bytes + c.t.capacity_bytes), "strong"),
    row("Written", (c) => bytesInWords(c.t.written_bytes)),
  ];
}

function fillTable(table, s, wave) {
  const word = waveWord(s.state);
  const heads = ["", `this ${word}`, "so far", "in all"];
  const head = element("thead", {}, element("tr", {}, ...heads.map((text) =>
    element(text ? "th" : "td", text ? { scope: "col" } : {}, text))));
  const body = element("tbody", {}, ...tableRows(s, wave).map(([name, values, kind]) =>
    element("tr", kind ? { class: `mgw-${kind}` } : {}, element("th", { scope: "row" }, name),
      ...values.map((value) => element("td", {}, value)))));
  const caption = element("caption", {}, `What a ${word} of ${s.state.concurrent} blocks reads`);
  table.replaceChildren(caption, head, body);
}

// ---- the view ----

class View {
  constructor(model, el) {
    this.model = model;
    this.ui = build(el, Boolean(model.link));
    this.cursor = null;
    this.timer = null;
    this.colours = readColours(this.ui.root);
    this.listeners = [];
    this.connect();
    this.refresh();
  }

  state() {
    return Object.fromEntries(STATE.map((name) => [name, this.model.get(name)]));
  }

  /** Recomputes everything; on a state that does not fit, shows why and keeps the picture. */
  refresh() {
    const state = this.state();
    this.showFields(state);
    const key = JSON.stringify({ ...state, wave: 0 });
    if (key !== this.studied) {
      this.studied = key;
      try {
        this.study = study(state);
        this.complain("");
      } catch (error) {
        this.complain(error.message);
      }
    }
    this.draw();
  }

  /** Shows what does not fit, "" for nothing; what is below belongs to the last state that did. */
  complain(sentence, input = null) {
    this.ui.error.textContent = sentence;
    this.ui.main.classList.toggle("mgw-stale", Boolean(sentence));
    for (const label of Object.values(this.ui.fields)) {
      const own = label.querySelector("input, select");
      own.setAttribute("aria-invalid", String(own === input));
    }
    if (/^mt = /.test(sentence)) {
      this.ui.fields.width.querySelector("input").setAttribute("aria-invalid", "true");
    }
  }

  wave() {
    return Math.max(0, Math.min(this.study.waves.length - 1, this.model.get("wave")));
  }

  goTo(wave) {
    const last = this.study.waves.length - 1;
    this.model.set("wave", Math.max(0, Math.min(last, wave)));
    this.model.save_changes();
  }

  draw() {
    if (!this.study) return;
    const [s, wave, ui] = [this.study, this.wave(), this.ui];
    const of = s.waves.length;
    ui.slider.max = String(of);
    ui.slider.value = String(wave + 1);
    const where = `${waveWord(s.state)} ${wave + 1} of ${of}`;
    ui.slider.setAttribute("aria-valuetext", where);
    ui.where.textContent = where;
    ui.buttons.first.disabled = ui.buttons.back.disabled = wave === 0;
    ui.buttons.last.disabled = ui.buttons.next.disabled = wave === of - 1;
    ui.summary.textContent = describe(s, wave);
    ui.sentence.textContent = conclude(s);
    ui.sms.textContent = describeSms(s);
    ui.code.textContent = waveCode(s.state);
    fillTable(ui.table, s, wave);
    const scale = `Read from HBM by each ${waveWord(s.state)}; the tallest bar is ` +
      `${bytesInWords(mostRead(s))}`;
    ui.scale.textContent = scale;
    ui.bars.setAttribute("aria-label", scale);
    this.paint();
  }

  paint() {
    if (!this.study) return;
    const wave = this.wave();
    this.base = paintBase(this.ui.canvas.clientWidth || 400, this.study, wave, this.colours);
    this.geometry = this.base.g;
    paintBars(this.ui.bars, this.study, wave, this.colours);
    this.paintPointed();
    const numbered = labelSize(this.study, this.geometry.side) > 0;
    this.ui.nowText.textContent = numbered ? "; the number is the block's" : "";
  }

  /** What pointing changes: the cursor and the sentence. */
  paintPointed() {
    paint(this.ui.canvas, this.base, this.study, this.cursor, this.colours);
    this.ui.inspector.textContent = this.inspect(this.wave());
  }

  inspect(wave) {
    const c = this.cursor;
    if (!c) return "Point at a tile, a row of A or a column of B to see who reads it and when.";
    if (c.c) return inspectTile(this.study, wave, c.c);
    return c.a !== undefined
      ? inspectBand(this.study, wave, "A", c.a)
      : inspectBand(this.study, wave, "B", c.b);
  }

  pointAt(cursor) {
    if (JSON.stringify(cursor) === JSON.stringify(this.cursor)) return;
    this.cursor = cursor;
    if (this.base) this.paintPointed();
  }

  play(on) {
    clearInterval(this.timer);
    this.timer = on ? setInterval(() => this.tick(), PLAY_MS) : null;
    this.ui.buttons.play.textContent = on ? "❚❚ pause" : "▶ play";
    this.ui.buttons.play.setAttribute("aria-pressed", String(on));
  }

  togglePlay() {
    const atEnd = this.wave() === this.study.waves.length - 1;
    if (!this.timer && atEnd) this.goTo(0);
    this.play(!this.timer);
  }

  tick() {
    if (this.wave() >= this.study.waves.length - 1) this.play(false);
    else this.goTo(this.wave() + 1);
  }

  // -- fields --

  showFields(state) {
    const shown = {
      ...state, l2_mib: state.l2_bytes / MIB, smem_kib: state.smem_bytes / 1024, sms: state.concurrent / state.per_sm,
      launch: !state.persistent ? "blocks" : state.dynamic ? "dynamic" : "persistent",
    };
    for (const [name, label] of Object.entries(this.ui.fields)) {
      const input = label.querySelector("input, select");
      if (input.type === "checkbox") input.checked = shown[name];
      else if (document.activeElement !== input || input.tagName === "SELECT") {
        input.value = String(shown[name]);
      }
    }
    const show = (name, wanted) => (this.ui.fields[name].style.display = wanted ? "" : "none");
    show("width", state.order !== "row-major");
    show("minor_dim", state.order === "snake");
    this.relabel("width", state.order === "tiled" ? "Width (mt)" : "Tile width");
  }

  relabel(name, text) {
    this.ui.fields[name].querySelector("span").textContent = text;
    this.ui.fields[name].querySelector("input").setAttribute("aria-label", text);
  }

  readField(input) {
    const { name, value, checked, type } = input;
    const sms = this.model.get("concurrent") / this.model.get("per_sm");
    if (name === "l2_mib") return { l2_bytes: Math.round(Number(value) * MIB) };
    if (name === "smem_kib") return { smem_bytes: Math.round(Number(value) * 1024) };
    if (name === "launch") return { persistent: value !== "blocks", dynamic: value === "dynamic" };
    if (name === "sms") return { concurrent: Number(value) * this.model.get("per_sm") };
    if (name === "per_sm") return { per_sm: Number(value), concurrent: sms * Number(value) };
    if (name === "itemsize") return { itemsize: Number(value), out_itemsize: Number(value) };
    return { [name]: type === "checkbox" ? checked : name === "order" ? value : Number(value) };
  }

  change(input) {
    const changes = this.readField(input);
    try {
      checkNumbers({ ...this.state(), ...changes });
    } catch (error) {
      this.studied = null;
      this.complain(error.message, input);
      return;
    }
    this.quiet = true; // several values are one change
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    this.quiet = false;
    this.model.save_changes();
    this.refresh();
  }

  // -- tools --

  async copy(text, what) {
    await copyText(text);
    this.say(`${what} copied.`);
  }

  say(text) {
    this.ui.said.textContent = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => (this.ui.said.textContent = ""), 2500);
  }

  /** A, B and C with the sentence about the wave above. */
  picture() {
    const { canvas } = this.ui;
    const dpr = window.devicePixelRatio || 1;
    const top = Math.round(30 * dpr);
    const whole = element("canvas");
    whole.width = canvas.width;
    whole.height = canvas.height + top;
    const ctx = whole.getContext("2d");
    ctx.fillStyle = this.colours.back;
    ctx.fillRect(0, 0, whole.width, whole.height);
    ctx.drawImage(canvas, 0, top);
    ctx.fillStyle = this.colours.ink;
    ctx.font = `${13 * dpr}px system-ui, sans-serif`;
    ctx.fillText(this.ui.summary.textContent, 6, 19 * dpr, whole.width - 12);
    return whole;
  }

  savePng() {
    element("a", { download: "waves.png", href: this.picture().toDataURL("image/png") }).click();
    this.say("Picture saved.");
  }

  // -- events --

  connect() {
    const { ui } = this;
    for (const label of Object.values(ui.fields)) {
      const input = label.querySelector("input, select");
      this.on(input, "change", () => this.change(input));
    }
    this.on(ui.slider, "input", () => this.goTo(Number(ui.slider.value) - 1));
    const steps = { first: () => 0, back: () => this.wave() - 1, next: () => this.wave() + 1,
      last: () => this.study.waves.length - 1 };
    for (const [name, target] of Object.entries(steps)) {
      this.on(ui.buttons[name], "click", () => this.goTo(target()));
    }
    this.on(ui.buttons.play, "click", () => this.togglePlay());
    this.on(ui.tools.copy, "click", () => this.copy(waveCode(this.study.state), "Code"));
    if (ui.tools.link) this.on(ui.tools.link, "click", () => this.copy(this.model.link(), "Link"));
    this.on(ui.tools.png, "click", () => this.savePng());
    this.on(ui.root, "keydown", (event) => this.key(event));
    this.on(ui.canvas, "pointermove", (event) => this.pointAt(this.under(event)));
    this.on(ui.canvas, "pointerleave", () => this.pointAt(null));
    this.on(ui.canvas, "pointerdown", (event) => this.pointAt(this.under(event)));
    this.on(ui.bars, "click", (event) => {
      const box = ui.bars.getBoundingClientRect();
      this.goTo(Math.floor(((event.clientX - box.left) / box.width) * this.study.waves.length));
    });
    const retheme = () => this.retheme();
    this.on(window.matchMedia("(prefers-color-scheme: dark)"), "change", retheme);
    this.themeObserver = new MutationObserver(retheme);
    this.themeObserver.observe(document.body, { attributes: true });
    this.sizeObserver = new ResizeObserver(() => this.resized());
    this.sizeObserver.observe(ui.root);
    this.onModel = () => this.quiet || this.refresh();
    this.onWave = () => this.draw();
    for (const name of STATE) {
      this.model.on(`change:${name}`, name === "wave" ? this.onWave : this.onModel);
    }
  }

  on(target, event, handler) {
    target.addEventListener(event, handler);
    this.listeners.push([target, event, handler]);
  }

  retheme() {
    this.colours = readColours(this.ui.root);
    this.paint();
  }

  resized() {
    const width = this.ui.root.clientWidth;
    if (width === this.width) return; // the picture's own height changes too
    this.width = width;
    this.retheme(); // styles apply only once the view is on the page
  }

  under(event) {
    const box = this.ui.canvas.getBoundingClientRect();
    return hitTest(this.geometry, this.study.state, event.clientX - box.left, event.clientY - box.top);
  }

  key(event) {
    if (event.target.matches("select, input") || event.altKey || event.ctrlKey || event.metaKey) return;
    const steps = { PageUp: this.wave() - 1, PageDown: this.wave() + 1, Home: 0,
      End: this.study.waves.length - 1 };
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const onCanvas = event.target === this.ui.canvas;
    if (event.key in steps) this.goTo(steps[event.key]);
    else if (onCanvas && event.key in moves) this.moveCursor(moves[event.key]);
    else if (onCanvas && event.key === " ") this.togglePlay();
    else if (onCanvas && event.key === "Escape") this.pointAt(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  moveCursor([dm, dn]) {
    const { m, n } = this.study.state;
    const [mi, ni] = this.cursor?.c ?? this.study.waves[this.wave()][0];
    const started = Boolean(this.cursor?.c);
    const wrap = (value, size) => Math.max(0, Math.min(size - 1, value));
    this.pointAt({ c: started ? [wrap(mi + dm, m), wrap(ni + dn, n)] : [mi, ni] });
  }

  close() {
    this.play(false);
    clearTimeout(this.saying);
    this.themeObserver.disconnect();
    this.sizeObserver.disconnect();
    for (const [target, event, handler] of this.listeners) target.removeEventListener(event, handler);
    for (const name of STATE) {
      this.model.off(`change:${name}`, name === "wave" ? this.onWave : this.onModel);
    }
  }
}

function render({ model, el }) {
  const view = new View(model, el);
  return () => view.close();
}

export default { render };
