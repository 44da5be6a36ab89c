// The maths of grid order, waves of blocks and the L2 model: the twin of
// course_lib/layouts/grid.py, which documents it. Pure functions on plain data:
// this file knows neither the page nor Python. tests/explorer compares the two.
//
// A tile is a pair [mi, ni]; an order is an array of tiles, the i-th block's at i.

export const KINDS = ["row-major", "tiled", "snake"];
export const MAX_REQUESTS = 2_000_000;
export const MAX_CLUSTER = 8;

// ---- orders ----

/** The order of `m` x `n` output tiles; `order` is {kind, width, minor_dim}. */
export function orderTiles(order, m, n) {
  if (!KINDS.includes(order.kind)) {
    throw new Error(`order '${order.kind}' is none of 'row-major', 'tiled' or 'snake'.`);
  }
  if (order.kind === "row-major") return rowMajor(m, n);
  if (order.kind === "tiled") return tiled(m, n, order.width);
  return planarSnake(m, n, order.minor_dim, order.width);
}

/** Grid (m, n): the last axis varies fastest. */
export function rowMajor(m, n) {
  return range(m * n).map((i) => [Math.floor(i / n), i % n]);
}

/** Grid (m / mt, n, mt): bands of mt tile rows, down each column of a band first. */
export function tiled(m, n, mt) {
  if (m % mt !== 0) {
    const fits = listed(range(m).map((d) => d + 1).filter((d) => m % d === 0));
    const lost = mt < m ? `the last ${m % mt} of ${m}` : `all ${m}`;
    throw new Error(
      `mt = ${mt} does not divide the ${m} tile rows: the grid (m // mt, n, mt) would leave ` +
        `out ${lost}. What divides ${m}: ${fits}.`,
    );
  }
  return range(m * n).map((i) => {
    const outer = Math.floor(i / (n * mt));
    const within = i % (n * mt);
    return [outer * mt + (within % mt), Math.floor(within / mt)];
  });
}

/** plgpu.planar_snake(i, [m, n], minorDim, tileWidth) for every i. */
export function planarSnake(m, n, minorDim, tileWidth) {
  const [minorSize, majorSize] = minorDim === 0 ? [m, n] : [n, m];
  const fullBands = Math.floor(minorSize / tileWidth);
  return range(m * n).map((i) => {
    const band = Math.floor(i / (tileWidth * majorSize));
    const within = i % (tileWidth * majorSize);
    const width = band < fullBands ? tileWidth : minorSize % tileWidth;
    const along = Math.floor(within / width);
    const major = band % 2 === 0 ? along : majorSize - 1 - along;
    const minor = band * tileWidth + (within % width);
    return minorDim === 0 ? [minor, major] : [major, minor];
  });
}

/** The order of `m` x `n` tiles in clusters of `down` x `across` blocks. See grid.clustered. */
export function clustered(order, m, n, down, across) {
  checkCluster(m, n, down, across);
  const within = rowMajor(down, across);
  return orderTiles(order, m / down, n / across).flatMap(([ci, cj]) =>
    within.map(([i, j]) => [ci * down + i, cj * across + j]),
  );
}

/** Throws an Error if `m` x `n` tiles are no whole number of clusters. See grid.check_cluster. */
export function checkCluster(m, n, down, across) {
  for (const [name, size, tiles, axis] of [["cluster_m", down, m, "rows"], ["cluster_n", across, n, "columns"]]) {
    if (tiles % size) {
      const fits = listed(range(MAX_CLUSTER).map((d) => d + 1).filter((d) => tiles % d === 0));
      throw new Error(
        `${name} = ${size} does not divide the ${tiles} tile ${axis}: no cluster is ever ` +
          `incomplete. What divides ${tiles}: ${fits}.`,
      );
    }
  }
  if (down * across > MAX_CLUSTER) {
    throw new Error(
      `A cluster of ${down} x ${across} has ${down * across} blocks: ${MAX_CLUSTER} are the ` +
        "most that every GPU with clusters takes.",
    );
  }
}

// ---- waves, and who computes what ----

/** The order cut into waves of `concurrent` tiles; the last may be smaller. */
export function waves(order, concurrent) {
  return range(Math.ceil(order.length / concurrent)).map((w) =>
    order.slice(w * concurrent, (w + 1) * concurrent),
  );
}

/** [block, step] of the i-th of `count` tiles under plgpu.nd_loop over `numSms` blocks. */
export function persistent(count, numSms) {
  return range(count).map((i) => [i % numSms, Math.floor(i / numSms)]);
}

/** How many waves `tiles` make, how full the last is, the share of block slots with work. */
export function quantization(tiles, concurrent) {
  const waveCount = Math.ceil(tiles / concurrent);
  const last = tiles % concurrent || concurrent;
  return { tiles, concurrent, waves: waveCount, last, busy: tiles / (waveCount * concurrent) };
}

/**
 * {worker, start, end} of each tile: static (i % workers) or to whoever is free first. With
 * clusters, `blocks` tiles at a time to as many workers in a row. See grid.assign_static.
 */
export function assign(costs, workers, dynamic, blocks = 1) {
  if (blocks === 1) return assignEach(costs, workers, dynamic);
  for (const [name, count] of [["blocks at a time", workers], ["tiles", costs.length]]) {
    if (count % blocks) throw new Error(`${count} ${name} are no whole number of clusters of ${blocks}.`);
  }
  const slowest = range(costs.length / blocks).map((c) => Math.max(...costs.slice(c * blocks, (c + 1) * blocks)));
  const whole = assignEach(slowest, workers / blocks, dynamic);
  const ofCluster = (i) => Math.floor(i / blocks);
  return {
    worker: costs.map((_, i) => whole.worker[ofCluster(i)] * blocks + (i % blocks)),
    start: costs.map((_, i) => whole.start[ofCluster(i)]),
    end: costs.map((cost, i) => whole.start[ofCluster(i)] + cost),
  };
}

function assignEach(costs, workers, dynamic) {
  const freeAt = new Array(workers).fill(0);
  const worker = costs.map((cost, i) => {
    const who = dynamic ? freeAt.indexOf(Math.min(...freeAt)) : i % workers;
    freeAt[who] += cost;
    return who;
  });
  const clock = new Array(workers).fill(0);
  const start = worker.map((who, i) => {
    const from = clock[who];
    clock[who] += costs[i];
    return from;
  });
  return { worker, start, end: start.map((from, i) => from + costs[i]) };
}

/** What `count` tiles cost: 1 to 1 + spread / 100. */
export function tileCosts(count, spread) {
  if (spread < 0) {
    throw new Error(`spread = ${spread} is negative: 0 stands for tiles that cost the same.`);
  }
  if (!spread) return new Array(count).fill(1);
  const mixed = (i) => {
    const once = Math.imul(i + 1, 2654435761);
    const twice = Math.imul(once ^ (once >>> 15), 2246822519);
    return (twice ^ (twice >>> 13)) >>> 0;
  };
  return range(count).map((i) => 1 + (spread / 100) * (mixed(i) / 2 ** 32));
}

/** {blocks, limit}: how many blocks fit on an SM. See grid.residency. */
export function residency({ smem_bytes = 0, threads = 128, registers = 0 }) {
  for (const [name, value, most] of [["smem_bytes", smem_bytes, 227 * 1024], ["threads", threads, 1024],
    ["registers", registers, 255]]) {
    if (!(value >= 0 && value <= most) || (name === "threads" && !value)) {
      throw new Error(`${name} = ${value} does not fit: a block has up to ${withCommas(most)}.`);
    }
  }
  const warps = Math.ceil(threads / 32);
  const ofWarp = Math.ceil((registers * 32) / 256) * 256;
  const fits = [
    ["shared memory", Math.floor((228 * 1024) / (smem_bytes + 1024))],
    ["threads", Math.floor(2048 / (32 * warps))],
    ["blocks", 32],
    ...(registers ? [["registers", Math.floor(65536 / (ofWarp * warps))]] : []),
  ];
  const least = Math.min(...fits.map(([, blocks]) => blocks));
  if (!least) {
    throw new Error(
      `A block of ${threads} lanes with ${registers} registers each does not fit: an SM has 65,536 registers.`,
    );
  }
  const name = fits.some(([n, blocks]) => n !== "blocks" && blocks === least)
    ? fits.find(([, blocks]) => blocks === least)[0] : "blocks";
  return { blocks: least, limit: name };
}

// ---- what a wave reads ----

/** Distinct tile rows of A, tile columns of B and tiles of C that some tiles touch. */
export function footprint(tiles) {
  return {
    a_rows: new Set(tiles.map(([mi]) => mi)).size,
    b_columns: new Set(tiles.map(([, ni]) => ni)).size,
    c_tiles: new Set(tiles.map(([mi, ni]) => `${mi},${ni}`)).size,
  };
}

/** Sizes in bytes of a matmul {m, n, k, tile_m, tile_n, tile_k, itemsize, out_itemsize}. */
export function sizes(mm) {
  const aTile = mm.tile_m * mm.tile_k * mm.itemsize;
  const bTile = mm.tile_k * mm.tile_n * mm.itemsize;
  const cTile = mm.tile_m * mm.tile_n * mm.out_itemsize;
  return {
    a_tile_bytes: aTile,
    b_tile_bytes: bTile,
    c_tile_bytes: cTile,
    a_bytes: mm.m * mm.k * aTile,
    b_bytes: mm.k * mm.n * bTile,
    c_bytes: mm.m * mm.n * cTile,
  };
}

/** The bytes of A and B in a footprint, each part counted once. */
export function inputBytes(mm, touched) {
  const { a_tile_bytes, b_tile_bytes } = sizes(mm);
  return mm.k * (touched.a_rows * a_tile_bytes + touched.b_columns * b_tile_bytes);
}

// ---- the L2 model ----

const [HIT, COMPULSORY, CAPACITY] = [0, 1, 2];

/**
 * A fully associative cache that evicts what was used longest ago. Keys are numbers below
 * `keys`, in a ring from the oldest to the newest, whose beginning and end is `keys` itself.
 */
class Lru {
  constructor(capacityBytes, keys) {
    this.free = capacityBytes;
    this.end = keys;
    this.newer = new Int32Array(keys + 1).fill(keys);
    this.older = new Int32Array(keys + 1).fill(keys);
    this.size = new Float64Array(keys); // of what is held, 0 of all else
    this.seen = new Uint8Array(keys); // whether it was ever held
  }

  /** Asks for `key`, which is held afterwards if `size` bytes fit at all: HIT, COMPULSORY or CAPACITY. */
  ask(key, size) {
    const { newer, older, end } = this;
    const held = this.size[key] > 0;
    if (held) this.unlink(key);
    const last = older[end];
    newer[last] = key;
    older[key] = last;
    newer[key] = end;
    older[end] = key;
    if (held) return HIT;
    this.size[key] = size;
    this.free -= size;
    while (this.free < 0) this.evict(newer[end]);
    if (this.seen[key]) return CAPACITY;
    this.seen[key] = 1;
    return COMPULSORY;
  }

  evict(key) {
    this.unlink(key);
    this.free += this.size[key];
    this.size[key] = 0;
  }

  unlink(key) {
    const { newer, older } = this;
    newer[older[key]] = newer[key];
    older[newer[key]] = older[key];
  }
}

/**
 * What each wave asks the L2 cache for and where it came from, and what the cache holds
 * after it. See grid.l2_traffic and grid.l2_contents. A wave's `held_a` and `held_b` are the
 * numbers of tiles held of each tile row of A and of each tile column of B.
 */
export function l2Run(mm, waveList, l2Bytes, countC = false, blocks = 1) {
  const count = waveList.reduce((sum, wave) => sum + wave.length, 0);
  const requests = 2 * count * mm.k;
  if (requests > MAX_REQUESTS) {
    const fits = Math.max(1, Math.floor(MAX_REQUESTS / (2 * count)));
    throw new Error(
      `${count} output tiles with k = ${mm.k} steps make ${withCommas(requests)} requests; the ` +
        `model steps through ${withCommas(MAX_REQUESTS)} at most. Take k <= ` +
        `${fits} with a larger tile_k, or fewer tiles.`,
    );
  }
  const keys = mm.m * mm.k + mm.k * mm.n + mm.m * mm.n;
  const cache = new Lru(l2Bytes, keys);
  return waveList.map((tiles) => {
    const traffic = waveTraffic(mm, tiles, cache, countC, blocks);
    return { traffic, ...contents(mm, cache) };
  });
}

function contents(mm, cache) {
  const heldA = new Array(mm.m).fill(0);
  const heldB = new Array(mm.n).fill(0);
  const bBase = mm.m * mm.k;
  const cBase = bBase + mm.k * mm.n;
  for (let key = cache.newer[cache.end]; key !== cache.end; key = cache.newer[key]) {
    if (key < bBase) heldA[Math.floor(key / mm.k)] += 1;
    else if (key < cBase) heldB[(key - bBase) % mm.n] += 1;
  }
  return { held_a: heldA, held_b: heldB };
}

function waveTraffic(mm, tiles, cache, countC, blocks) {
  const { a_tile_bytes, b_tile_bytes, c_tile_bytes } = sizes(mm);
  const bBase = mm.m * mm.k; // keys: A's tiles, then B's, then C's
  const cBase = bBase + mm.k * mm.n;
  const [ofA, ofB] = [new Int32Array(3), new Int32Array(3)]; // how many were HIT, ...
  const asks = firstInCluster(tiles, blocks);
  for (let ki = 0; ki < mm.k; ki++) {
    for (let i = 0; i < tiles.length; i++) {
      const tile = tiles[i];
      if (asks[0][i]) ofA[cache.ask(tile[0] * mm.k + ki, a_tile_bytes)]++;
      if (asks[1][i]) ofB[cache.ask(bBase + ki * mm.n + tile[1], b_tile_bytes)]++;
    }
  }
  if (countC) for (const [mi, ni] of tiles) cache.ask(cBase + mi * mm.n + ni, c_tile_bytes);
  const bytes = (kind) => ofA[kind] * a_tile_bytes + ofB[kind] * b_tile_bytes;
  return {
    hits: ofA[HIT] + ofB[HIT],
    compulsory: ofA[COMPULSORY] + ofB[COMPULSORY],
    capacity: ofA[CAPACITY] + ofB[CAPACITY],
    hit_bytes: bytes(HIT),
    compulsory_bytes: bytes(COMPULSORY),
    capacity_bytes: bytes(CAPACITY),
    written_bytes: tiles.length * c_tile_bytes,
  };
}

/** For A and for B: which tiles are the first of their cluster that need that part of it. */
function firstInCluster(tiles, blocks) {
  return [0, 1].map((axis) =>
    tiles.map((tile, i) => {
      for (let j = i - (i % blocks); j < i; j++) if (tiles[j][axis] === tile[axis]) return false;
      return true;
    }),
  );
}

export function emptyTraffic() {
  return {
    hits: 0,
    compulsory: 0,
    capacity: 0,
    hit_bytes: 0,
    compulsory_bytes: 0,
    capacity_bytes: 0,
    written_bytes: 0,
  };
}

/** The sum of several waves' traffic. */
export function totalTraffic(list) {
  const sum = emptyTraffic();
  for (const traffic of list) for (const key of Object.keys(sum)) sum[key] += traffic[key];
  return sum;
}

// ---- words ----

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** A number of bytes in words, three digits or the whole number: "96 KiB", "1.05 GiB". */
export function bytesInWords(bytes) {
  let unit = 0;
  let value = bytes;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const scale = value >= 100 ? 1 : value >= 10 ? 10 : 100;
  return `${Math.floor(value * scale + 0.5) / scale} ${UNITS[unit]}`;
}

export function withCommas(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function range(count) {
  const all = new Array(count); // Array.from with a function takes several times as long
  for (let i = 0; i < count; i++) all[i] = i;
  return all;
}

function listed(words) {
  const most = words.slice(0, -1);
  const last = words[words.length - 1];
  return most.length ? `${most.join(", ")} or ${last}` : `${last}`;
}
