// The maths of where things lie: tilings, swizzles, shared memory, register layouts, tensor
// memory and bank conflicts. The twin of course_lib/layouts/{tiling,swizzle,smem,registers,
// tmem,banks}.py, which document it. Pure functions on plain data; tests/explorer compares.
//
// A tiling is an array of tiles, a ref is {shape, bits, tiles, swizzle, permutation}, an index
// and a shape are arrays of numbers. `null` stands for no swizzle and no transpose.

export const BANKS = 32;
export const WARPS = 4;
export const LANES = 32;
export const THREADS = 128;
export const SWIZZLES = [128, 64, 32];
export const TMEM_COLUMNS = 512;
const BITS = [4, 8, 16, 32];
const MAX_BYTES = 16;

// ---- words ----

export function pythonTuple(numbers) {
  return numbers.length === 1 ? `(${numbers[0]},)` : `(${numbers.join(", ")})`;
}

export function listWords(words, word = "or") {
  const most = words.slice(0, -1);
  const last = words[words.length - 1];
  return most.length ? `${most.join(", ")} ${word} ${last}` : `${last}`;
}

const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const upTo = (count) => Array.from({ length: count }, (_, i) => i);

// ---- tilings ----

/** The shape after tiling; throws an Error that says which sizes divide. */
export function tiledShape(tiles, shape) {
  let now = [...shape];
  for (const tile of tiles) {
    checkTile(tile);
    checkDivides(tile, now);
    const rank = now.length - tile.length;
    const outer = tile.map((t, i) => now[rank + i] / t);
    now = [...now.slice(0, rank), ...outer, ...tile];
  }
  return now;
}

function checkTile(tile) {
  if (!tile.length || tile.some((t) => t < 1)) {
    throw new Error(`tile ${pythonTuple(tile)} does not fit: each size must be 1 or more.`);
  }
}

function checkDivides(tile, shape) {
  const rank = shape.length - tile.length;
  if (rank < 0) {
    throw new Error(
      `tile ${pythonTuple(tile)} has ${tile.length} axes and the array ${pythonTuple(shape)} only ` +
        `${shape.length}: a tile covers the last axes of the array.`,
    );
  }
  tile.forEach((t, i) => {
    const size = shape[rank + i];
    if (size % t === 0) return;
    const fits = upTo(size).map((d) => d + 1).filter((d) => size % d === 0);
    throw new Error(
      `tile ${pythonTuple(tile)} does not divide the shape ${pythonTuple(shape)}: ${t} does not ` +
        `divide the ${size} of axis ${rank + i}. What does: ${listWords(fits)}.`,
    );
  });
}

export function tiledStrides(tiles, strides) {
  let now = [...strides];
  for (const tile of tiles) {
    const rank = now.length - tile.length;
    const outer = tile.map((t, i) => now[rank + i] * t);
    now = [...now.slice(0, rank), ...outer, ...now.slice(rank)];
  }
  return now;
}

export function tiledIndex(tiles, index) {
  let now = [...index];
  for (const tile of tiles) {
    const rank = now.length - tile.length;
    const last = now.slice(rank);
    now = [
      ...now.slice(0, rank),
      ...last.map((i, axis) => Math.floor(i / tile[axis])),
      ...last.map((i, axis) => i % tile[axis]),
    ];
  }
  return now;
}

/** The inverse of tiledIndex. */
export function logicalIndex(tiles, index) {
  let now = [...index];
  for (const tile of [...tiles].reverse()) {
    const inner = now.length - tile.length;
    const outer = inner - tile.length;
    const last = tile.map((t, axis) => now[outer + axis] * t + now[inner + axis]);
    now = [...now.slice(0, outer), ...last];
  }
  return now;
}

export function rowMajorStrides(shape) {
  return shape.map((_, i) => product(shape.slice(i + 1)));
}

function unravel(offset, shape) {
  const index = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = offset % shape[axis];
    offset = Math.floor(offset / shape[axis]);
  }
  return index;
}

// ---- swizzles ----

/** What the chunk number at a byte offset is XORed with. */
export function swizzlePhase(offset, swizzle) {
  return (offset >> 7) & ((swizzle ?? 16) / 16 - 1);
}

export function swizzleBytes(offset, swizzle) {
  return offset ^ (swizzlePhase(offset, swizzle) << 4);
}

function swizzleBits(offset, swizzle) {
  return offset ^ (swizzlePhase(offset >> 3, swizzle) << 7);
}

// ---- shared memory ----

/** Throws an Error that says what does not fit together and what would. */
export function checkRef(ref) {
  if (!BITS.includes(ref.bits)) {
    throw new Error(`bits = ${ref.bits}: an element has ${listWords(BITS)} bits here.`);
  }
  if (!ref.shape.length || ref.shape.some((d) => d < 1)) {
    throw new Error(`shape ${pythonTuple(ref.shape)} does not fit: each size must be 1 or more.`);
  }
  if (ref.swizzle !== null && !SWIZZLES.includes(ref.swizzle)) {
    const none = ref.swizzle === 16 ? " 16 bytes would move nothing: leave the transform out." : "";
    throw new Error(
      `swizzle = ${ref.swizzle} does not exist: there are ${listWords(SWIZZLES)} bytes.${none}`,
    );
  }
  checkSwizzleFits(ref, tiledShape(ref.tiles, ref.shape).at(-1));
  const axes = upTo(ref.shape.length);
  if (ref.permutation && [...ref.permutation].sort().join() !== axes.join()) {
    throw new Error(
      `transpose ${pythonTuple(ref.permutation)} does not order the axes ${pythonTuple(axes)} of ` +
        `the shape ${pythonTuple(ref.shape)}.`,
    );
  }
}

function checkSwizzleFits({ swizzle, bits, tiles }, minor) {
  if (swizzle === null) return;
  const wanted = (swizzle * 8) / bits;
  if (minor === wanted) return;
  const what = tiles.length ? "tile" : "array (it has no tiling)";
  const fits = SWIZZLES.filter((s) => (s * 8) / bits === minor);
  const other = fits.length ? `, or take swizzle ${fits[0]}` : "";
  throw new Error(
    `swizzle ${swizzle} and ${bits}-bit elements need ${wanted} elements along the last axis of a ` +
      `tile (${swizzle} bytes); this ${what} has ${minor}. Tile by (8, ${wanted})${other}.`,
  );
}

export function viewShape(ref) {
  return ref.permutation ? ref.permutation.map((axis) => ref.shape[axis]) : [...ref.shape];
}

/** Place in memory before the swizzle, in elements, of an index of the view. */
export function elementOffset(ref, index) {
  const own = [...index];
  ref.permutation?.forEach((axis, place) => {
    own[axis] = index[place];
  });
  const strides = rowMajorStrides(tiledShape(ref.tiles, ref.shape));
  return tiledIndex(ref.tiles, own).reduce((sum, i, axis) => sum + i * strides[axis], 0);
}

export function bitOffset(ref, index) {
  return swizzleBits(elementOffset(ref, index) * ref.bits, ref.swizzle);
}

export function byteOffset(ref, index) {
  return bitOffset(ref, index) >> 3;
}

export function bankOf(byte) {
  return (byte >> 2) % BANKS;
}

/**
 * All of a two-dimensional view at once: `bits`, `plain` and `phase` by row-major element
 * number (swizzled and unswizzled address in bits; what was XORed), `at` the inverse: the
 * element number in each slot of memory. Typed arrays of the view's size.
 */
export function memoryMap(ref) {
  checkRef(ref);
  const shape = viewShape(ref);
  const size = product(shape);
  const perAxis = shape.map((length, axis) =>
    Int32Array.from({ length }, (_, i) => elementOffset(ref, shape.map((_, a) => (a === axis ? i : 0)))),
  ); // a tiled address is a sum of one part for each axis
  const bits = new Int32Array(size);
  const plain = new Int32Array(size);
  const phase = new Uint8Array(size);
  const at = new Int32Array(size);
  const inner = perAxis.pop();
  const outer = perAxis.reduce((all, part) => all.flatMap((from) => Array.from(part, (by) => from + by)), [0]);
  const phases = ref.swizzle ? ref.swizzle / 16 - 1 : 0;
  const chunk = 128 / ref.bits; // elements of 16 bytes
  let element = 0;
  for (let r = 0; r < outer.length; r++) {
    for (let c = 0; c < inner.length; c++, element++) {
      const slot = outer[r] + inner[c];
      const flat = slot * ref.bits;
      const xor = (flat >> 10) & phases; // swizzlePhase, of an address in bits
      plain[element] = flat;
      phase[element] = xor;
      bits[element] = flat ^ (xor << 7);
      at[slot ^ (xor * chunk)] = element;
    }
  }
  return { shape, size, bits, plain, phase, at };
}

/** The index of the view that lies in a slot of memory. */
export function indexAt(ref, slot) {
  const place = swizzleBits(slot * ref.bits, ref.swizzle) / ref.bits;
  const own = logicalIndex(ref.tiles, unravel(place, tiledShape(ref.tiles, ref.shape)));
  return ref.permutation ? ref.permutation.map((axis) => own[axis]) : own;
}

/** The plgpu expression that allocates it. */
export function refCode(ref, dtype) {
  const transforms = ref.tiles.map((tile) => `plgpu.TilingTransform(${pythonTuple(tile)})`);
  if (ref.swizzle) transforms.push(`plgpu.SwizzleTransform(${ref.swizzle})`);
  const comma = transforms.length === 1 ? "," : "";
  const given = transforms.length ? `, transforms=(${transforms.join(", ")}${comma})` : "";
  return `plgpu.SMEM(${pythonTuple(ref.shape)}, jnp.${dtype}${given})`;
}

// ---- register layouts ----

// An axis is a negative number; {times} is an axis over which all hold the same.
const same = (times) => ({ times });

function tiledLayout(tiles, warp_dims, lane_dims, vector_dim = -1) {
  return { kind: "tiled", tiles, warp_dims, lane_dims, vector_dim };
}

const WGMMA = tiledLayout([[64, 8], [16, 8], [8, 8], [2]], [-7], [-3, -2]);
const TCGEN05 = tiledLayout([[128, 8], [32, 8], [8, 8], [2]], [-7], [-3, -2]);

export function tmemNative(vector = 2) {
  return tiledLayout([[128, vector], [32, vector]], [-4], [-2]);
}

function checkColumns(columns) {
  if (columns < 16 || columns % 16) {
    throw new Error(`columns = ${columns} does not fit: it must be a multiple of 16.`);
  }
}

function m64Collective(columns) {
  checkColumns(columns);
  return tiledLayout([[64, columns], [32, columns / 2], [8, 8], [2]], [-6, -7], [-3, -2]);
}

function m64CollectiveNative(columns, vector = 1) {
  checkColumns(columns);
  return tiledLayout([[64, columns], [32, columns / 2], [vector]], [-4, -5], [-3]);
}

function mmaWarps(name, shape) {
  const rows = { MMA_LHS: 16, MMA_ACC: 16 }[name] ?? 0;
  const columns = { MMA_RHS: 8, MMA_ACC: 8 }[name] ?? 0;
  const fits = (warps) =>
    (!rows || shape.at(-2) % (rows * warps) === 0) &&
    (!columns || shape.at(-1) % ((columns * WARPS) / warps) === 0);
  return [4, 2, 1].find(fits) ?? 4;
}

function mmaLhs(bits, warps) {
  const per = Math.max(32 / bits, 1);
  const half = 4 * per;
  return tiledLayout([[warps * 16, 2 * half], [16, half], [8, half], [per]], [-7, same(WARPS / warps)], [-3, -2]);
}

function mmaRhs(bits, warps) {
  const per = Math.max(32 / bits, 1);
  const tiles = [[8 * per, (WARPS / warps) * 8], [4 * per, 8], [per, 1]];
  return tiledLayout(tiles, [same(warps), -5], [-3, -4], -2);
}

function mmaAcc(warps) {
  return tiledLayout([[warps * 16, (WARPS / warps) * 8], [16, 8], [8, 8], [2]], [-7, -6], [-3, -2]);
}

function copyLayout(shape, bits, swizzle) {
  const minor = (swizzle * 8) / bits;
  const [rows, columns] = tiledShape([[8, minor]], shape).slice(-4, -2);
  const warp = [[4, 1], [2, 2], [1, 4]].find(([r, c]) => rows % r === 0 && columns % c === 0);
  if (!warp || (rows % 2 === 0 && rows % 4 && columns % 2)) {
    throw new Error(
      `${pythonTuple(shape)} makes ${rows} x ${columns} tiles of (8, ${minor}): 4 warps cannot share ` +
        "them evenly. Take a multiple of 4 tiles.",
    );
  }
  const [down, across, vector, steps] = copyLanes(rows / warp[0], columns / warp[1], bits, swizzle);
  const inner = [down * 8, across * minor];
  const tiles = [[warp[0] * inner[0], warp[1] * inner[1]], inner, [8, minor], [8 / steps, minor], [vector]];
  return tiledLayout(tiles, [-9, -8], [-7, -6, -3, -2]);
}

/** Tiles that a warp copies at once, elements a lane copies, steps a tile takes. */
function copyLanes(rows, columns, bits, swizzle) {
  const perThread = Math.min(16, (8 * swizzle) / LANES);
  let [down, across, scale] = [1, 1, 16 / perThread];
  for (; scale > 1 && columns % 2 === 0; columns /= 2) [scale, across] = [scale / 2, across * 2];
  for (; scale > 1 && rows % 2 === 0; rows /= 2) [scale, down] = [scale / 2, down * 2];
  const vector = (perThread * across * down * 8) / bits;
  return [down, across, vector, Math.max(1, Math.floor((8 * ((swizzle * 8) / bits)) / (vector * LANES)))];
}

function copySwizzle(shape, bits) {
  for (const swizzle of SWIZZLES) {
    try {
      copyLayout(shape, bits, swizzle);
      return swizzle;
    } catch {
      continue;
    }
  }
  return SWIZZLES[0];
}

/** The layout of what a reduction along an axis of the first tile leaves. */
export function reduceLayout(layout, axis) {
  const tile = tileShape(layout);
  const marks = layout.tiles[0].map((_, i) => (i === axis ? 0 : 1));
  const gone = tiledStrides(layout.tiles, marks).slice(-tile.length).map((s) => s === 0);
  const tiles = withoutAxis(layout.tiles, axis);
  const shiftOf = (dim) => gone.slice(gone.length + dim).filter(Boolean).length;
  const lost = gone[gone.length + layout.vector_dim];
  if (lost) tiles.push([1]);
  const moved = (dim) => {
    if (typeof dim !== "number") return dim;
    if (gone[gone.length + dim]) return same(tile[tile.length + dim]);
    return dim + shiftOf(dim) - (lost ? 1 : 0);
  };
  const vector = lost ? -1 : layout.vector_dim + shiftOf(layout.vector_dim);
  return tiledLayout(tiles, layout.warp_dims.map(moved), layout.lane_dims.map(moved), vector);
}

function withoutAxis(tiles, axis) {
  const kept = [];
  let lastRank = tiles[0].length;
  for (const tile of tiles) {
    axis -= lastRank - tile.length;
    lastRank = tile.length;
    const left = axis >= 0 ? [...tile.slice(0, axis), ...tile.slice(axis + 1)] : tile;
    if (!left.length) break;
    kept.push(left);
  }
  return kept;
}

function tileShape(layout) {
  const base = layout.tiles[0];
  return tiledShape(layout.tiles, base).slice(base.length);
}

function stridedVector(shape, bits) {
  const size = product(shape);
  let vector = Math.min(Math.floor(64 / bits), Math.floor(size / THREADS));
  while (vector > 0 && size % (vector * THREADS)) vector = Math.floor(vector / 2);
  return Math.max(vector, 1);
}

const REDUCED = "a vector that a reduction leaves; 4 lanes each hold the same";
const COLUMN = "one value a column: 4 warps and 8 lanes of each hold the same";

/** name -> {make(shape, bits), code, what, rank}. See registers.CATALOG. */
export const CATALOG = {
  WGMMA: entry(() => WGMMA, "plgpu.Layout.WGMMA", "accumulators and A operands of wgmma"),
  WGMMA_ROW: entry(() => reduceLayout(WGMMA, 1), "plgpu.Layout.WGMMA.reduce(1)",
    `one value a row: ${REDUCED}`, 1),
  WGMMA_COL: entry(() => reduceLayout(WGMMA, 0), "plgpu.Layout.WGMMA.reduce(0)", COLUMN, 1),
  WGMMA_TRANSPOSED: entry(
    () => tiledLayout([[64, 8], [16, 8], [8, 8], [2, 2], [2, 1]], [-10], [-6, -3, -5], -2),
    "plgpu.Layout.WGMMA_TRANSPOSED",
    "WGMMA with pairs of rows in a register, to store into a transposed ref"),
  _WGMMA_ACC_32BIT: entry(
    () => tiledLayout([[64, 8], [16, 8], [8, 8], [2], [1]], [-8], [-4, -3]), "plgpu.Layout._WGMMA_ACC_32BIT",
    "WGMMA with an element a register: what JAX gives 32-bit accumulators"),
  WGMMA_8BIT: entry(() => tiledLayout([[64, 16], [16, 16], [8, 16], [4]], [-7], [-3, -2]),
    "plgpu.Layout.WGMMA_8BIT", "8-bit A operands of wgmma"),
  WGMMA_UPCAST_2X: entry(
    () => tiledLayout([[64, 16], [16, 16], [8, 16], [8], [4]], [-8], [-4, -2, -3]),
    "plgpu.Layout.WGMMA_UPCAST_2X", "8-bit data that becomes a 16-bit WGMMA array"),
  WGMMA_UPCAST_4X: entry(() => tiledLayout([[64, 32], [16, 32], [8, 32], [8]], [-7], [-3, -2]),
    "plgpu.Layout.WGMMA_UPCAST_4X", "4-bit data that becomes a 16-bit WGMMA array"),
  WG_STRIDED: entry((shape, bits) => ({ kind: "strided", vector: stridedVector(shape, bits) }),
    "plgpu.Layout.WG_STRIDED({shape}, vec_size={vector})",
    "plain arrays: consecutive elements go to consecutive threads"),
  WG_SPLAT: entry(() => ({ kind: "splat" }), "plgpu.Layout.WG_SPLAT({shape})",
    "constants: all elements are equal"),
  TCGEN05: entry(() => TCGEN05, "plgpu.Layout.TCGEN05",
    "as WGMMA, but each warp holds 32 rows (Blackwell)"),
  TCGEN05_ROW: entry(() => reduceLayout(TCGEN05, 1), "plgpu.Layout.TCGEN05.reduce(1)",
    `one value a row: ${REDUCED}`, 1),
  TCGEN05_COL: entry(() => reduceLayout(TCGEN05, 0), "plgpu.Layout.TCGEN05.reduce(0)", COLUMN, 1),
  TCGEN05_TRANSPOSED: entry(
    () => tiledLayout([[128, 8], [32, 8], [8, 8], [2, 2], [2, 1]], [-10], [-6, -3, -5], -2),
    "plgpu.Layout.TCGEN05_TRANSPOSED",
    "TCGEN05 with pairs of rows in a register, to store into a transposed ref"),
  TCGEN05_TMEM_NATIVE: entry(() => tmemNative(), "plgpu.Layout.TCGEN05_TMEM_NATIVE",
    "TMEM's own order: thread i holds row i"),
  TCGEN05_M64_COLLECTIVE: entry((shape) => m64Collective(shape.at(-1)),
    "plgpu.Layout.TCGEN05_M64_COLLECTIVE({columns})",
    "one block's half of a collective MMA with M = 128"),
  TCGEN05_M64_COLLECTIVE_NATIVE: entry((shape) => m64CollectiveNative(shape.at(-1)),
    "plgpu.Layout.TCGEN05_M64_COLLECTIVE_NATIVE({columns})", "the same in TMEM's own order"),
  TMA_INDICES: entry(() => tiledLayout([[16], [4]], [-2], [same(32)]), "plgpu.Layout.TMA_INDICES",
    "row numbers of a TMA gather: 4 a warp, the same in all its lanes", 1),
  TMA_INDICES_4: entry(() => tiledLayout([[4]], [same(4)], [same(32)]),
    "plgpu.Layout.TMA_INDICES_4",
    "row numbers of a TMA gather: the same 4 in every thread", 1),
  SMEM_GMEM_COPY: entry((shape, bits) => copyLayout(shape, bits, copySwizzle(shape, bits)),
    "plgpu.Layout.SMEM_GMEM_COPY({shape}, jnp.{dtype}, {swizzle})",
    "copies between GMEM and swizzled tiles, 16 bytes a lane, without conflicts"),
  MMA_LHS: entry((shape, bits) => mmaLhs(bits, mmaWarps("MMA_LHS", shape)),
    "plgpu.Layout.MMA_LHS(jnp.{dtype}, m_warps={warps})",
    "left operands of mma.sync (Ampere and later; each warp multiplies on its own)"),
  MMA_RHS: entry((shape, bits) => mmaRhs(bits, mmaWarps("MMA_RHS", shape)),
    "plgpu.Layout.MMA_RHS(jnp.{dtype}, m_warps={warps})",
    "right operands of mma.sync: neighbours along K share a register"),
  MMA_ACC: entry((shape) => mmaAcc(mmaWarps("MMA_ACC", shape)),
    "plgpu.Layout.MMA_ACC(jnp.{dtype}, m_warps={warps})", "accumulators of mma.sync"),
};

const DTYPES = { 4: "int4", 8: "int8", 16: "bfloat16", 32: "float32" };

export function dtypeOf(bits) {
  return DTYPES[bits];
}

function entry(make, code, what, rank = 2) {
  return { make, code, what, rank };
}

/** The layout of a name for arrays of a shape; throws an Error that says what would fit. */
export function namedLayout(name, shape, bits) {
  const known = CATALOG[name];
  if (!known) throw new Error(`layout '${name}' is none of ${listWords(Object.keys(CATALOG))}.`);
  if (shape.length < known.rank) {
    throw new Error(
      `${name} is for arrays with ${known.rank} axes; ${pythonTuple(shape)} has ${shape.length}.`,
    );
  }
  const layout = known.make(shape, bits);
  if (layout.kind === "tiled") checkCovers(name, layout, shape);
  return layout;
}

function checkCovers(name, layout, shape) {
  const base = layout.tiles[0];
  const last = shape.slice(-base.length);
  if (last.length === base.length && last.every((d, i) => d % base[i] === 0)) return;
  const fits = last.map((d, i) => Math.max(base[i], Math.ceil(d / base[i]) * base[i]));
  throw new Error(
    `${name} covers arrays in tiles of ${pythonTuple(base)}; ${pythonTuple(shape)} is not a whole ` +
      `number of them. The next that is: ${pythonTuple(fits)}.`,
  );
}

export function vectorLength(layout) {
  if (layout.kind !== "tiled") return layout.vector ?? 1;
  const shape = tileShape(layout);
  return shape[shape.length + layout.vector_dim];
}

/**
 * Who holds what: {registers, vector, elements}. `elements[(thread * registers + register) *
 * vector + i]` is the row-major number of the element in that place.
 */
export function layoutElements(layout, shape) {
  if (layout.kind === "splat") {
    return { registers: 1, vector: 1, elements: new Int32Array(THREADS) };
  }
  return layout.kind === "strided" ? stridedElements(layout, shape) : tiledElements(layout, shape);
}

function stridedElements({ vector }, shape) {
  const size = product(shape);
  const step = THREADS * vector;
  if (size % step) {
    const fits = [1, 2, 4, 8, 16].filter((v) => size % (THREADS * v) === 0);
    const words = fits.length ? ` vec_size = ${listWords(fits)} would fit.` : "";
    throw new Error(
      `WG_STRIDED with vec_size = ${vector} needs a multiple of ${step} elements (128 threads x ` +
        `${vector}); ${pythonTuple(shape)} has ${size}.${words}`,
    );
  }
  const registers = size / step;
  const elements = new Int32Array(size);
  for (let thread = 0, place = 0; thread < THREADS; thread++) {
    for (let register = 0; register < registers; register++) {
      for (let i = 0; i < vector; i++) elements[place++] = register * step + thread * vector + i;
    }
  }
  return { registers, vector, elements };
}

function tiledElements(layout, shape) {
  const strides = tiledStrides(layout.tiles, rowMajorStrides(shape));
  const counted = tiledShape(layout.tiles, shape);
  const tile = tileShape(layout);
  for (const dim of [...layout.warp_dims, ...layout.lane_dims, layout.vector_dim]) {
    if (typeof dim === "number") counted[counted.length + dim] = 1;
  }
  const offsets = (dims) =>
    dims.reduce((all, dim) => {
      const times = typeof dim === "number" ? tile[tile.length + dim] : dim.times;
      const step = typeof dim === "number" ? strides[strides.length + dim] : 0;
      return all.flatMap((offset) => upTo(times).map((i) => offset + i * step));
    }, [0]);
  const [warp, lane] = [offsets(layout.warp_dims), offsets(layout.lane_dims)];
  const register = counted.reduce(
    (all, times, axis) =>
      times === 1 ? all : all.flatMap((offset) => upTo(times).map((i) => offset + i * strides[axis])),
    [0],
  );
  const vector = vectorLength(layout);
  const step = strides[strides.length + layout.vector_dim];
  const elements = new Int32Array(THREADS * register.length * vector);
  const threads = warp.flatMap((fromWarp) => lane.map((fromLane) => fromWarp + fromLane));
  let place = 0;
  for (let thread = 0; thread < threads.length; thread++) {
    for (let r = 0; r < register.length; r++) {
      const first = threads[thread] + register[r];
      for (let i = 0; i < vector; i++) elements[place++] = first + i * step;
    }
  }
  return { registers: register.length, vector, elements };
}

/**
 * The inverse: {replication, places}. `places[element * replication + copy]` is a place as in
 * `layoutElements`, ascending by thread. A splat's elements are all in register 0 of all threads.
 */
export function layoutHolders(layout, shape, held = layoutElements(layout, shape)) {
  const size = product(shape);
  if (layout.kind === "splat") {
    return { replication: THREADS, places: Int32Array.from({ length: size * THREADS }, (_, i) => i % THREADS) };
  }
  const replication = held.elements.length / size;
  const places = new Int32Array(held.elements.length);
  const filled = new Int32Array(size);
  for (let place = 0; place < held.elements.length; place++) {
    const element = held.elements[place];
    places[element * replication + filled[element]++] = place;
  }
  return { replication, places };
}

/** A place as [thread, register, element of the register]. */
export function placeParts({ registers, vector }, place) {
  const within = place % (registers * vector);
  return [Math.floor(place / (registers * vector)), Math.floor(within / vector), within % vector];
}

export function layoutCode(name, shape, bits) {
  const known = CATALOG[name];
  const copies = known.code.includes("{swizzle}");
  return known.code
    .replace("{shape}", pythonTuple(shape))
    .replace("{columns}", shape.at(-1))
    .replace("{vector}", vectorLength(known.make(shape, bits)))
    .replace("{dtype}", dtypeOf(bits))
    .replace("{warps}", mmaWarps(name, shape))
    .replace("{swizzle}", copies ? copySwizzle(shape, bits) : "");
}

// ---- tensor memory ----

/** Throws an Error that says what TMEM cannot hold. A TMEM ref: {shape, bits, packed, collective}. */
export function checkTmem(ref) {
  const { shape, bits, packed } = ref;
  if (shape.length !== 2 || ![64, 128].includes(shape[0])) {
    throw new Error(
      `shape ${pythonTuple(shape)} does not fit TMEM: it holds (128, N) or (64, N), the rows being ` +
        "those of an MMA with M = 128 or 64.",
    );
  }
  if (![8, 16, 32].includes(bits)) {
    throw new Error(`bits = ${bits}: TMEM holds elements of 8, 16 or 32 bits.`);
  }
  const packing = tmemPacking(ref);
  if (shape[1] < 1 || shape[1] % packing) {
    throw new Error(
      `${shape[1]} columns of ${bits} bits cannot be packed ${packing} to a column: take a multiple ` +
        `of ${packing}.`,
    );
  }
  if (shape[0] === 64 && (shape[1] < 16 || shape[1] % 16)) {
    throw new Error(
      `${shape[1]} columns with M = 64: it must be a multiple of 16, because two halves of the lanes ` +
        "share them.",
    );
  }
  if (tmemColumns(ref) > TMEM_COLUMNS) {
    throw new Error(
      `${pythonTuple(shape)} of ${bits} bits${packed ? "" : ", unpacked,"} takes ` +
        `${tmemColumns(ref)} columns of TMEM; there are ${TMEM_COLUMNS}.`,
    );
  }
}

export function tmemPacking({ bits, packed }) {
  return packed ? 32 / bits : 1;
}

export function tmemColumns(ref) {
  return product(ref.shape) / 128 / tmemPacking(ref);
}

/** Columns that must be allocated: a power of two, 32 at least. */
export function tmemAllocated(ref) {
  return Math.max(32, 2 ** Math.ceil(Math.log2(tmemColumns(ref))));
}

/** Where its elements lie: thread stands for lane, register for column. */
export function tmemLayout(ref) {
  checkTmem(ref);
  const packing = tmemPacking(ref);
  const columns = ref.shape[1];
  if (ref.shape[0] === 128) return tmemNative(packing);
  if (ref.collective) return m64CollectiveNative(columns, packing);
  return tiledLayout([[64, columns], [16, columns / 2], [packing]], [-5], [-4, -3]);
}

/** Refs of "rows x columns x bits" with an optional p for packed, comma-separated. */
export function parseTmem(text, collective) {
  return text.split(",").map((part) => part.trim()).filter(Boolean).map((part) => {
    const found = /^(\d+)\s*x\s*(\d+)\s*x\s*(\d+)(p?)$/.exec(part);
    if (!found) {
      throw new Error(`'${part}' is no array of TMEM: write rows x columns x bits, as 128x64x32, and p for packed.`);
    }
    const [rows, columns, bits] = found.slice(1, 4).map(Number);
    const ref = { shape: [rows, columns], bits, packed: found[4] === "p" && bits < 32, collective };
    checkTmem(ref);
    return ref;
  });
}

/** {starts, end, allocated}: see tmem.allocate. */
export function allocateTmem(refs) {
  const starts = [];
  let end = 0;
  for (const ref of refs) {
    starts.push(end);
    end += Math.ceil(tmemColumns(ref) / 4) * 4;
  }
  if (end > TMEM_COLUMNS) {
    throw new Error(
      `${listWords(refs.map(tmemColumns), "and")} columns are ${end} together; TMEM has ${TMEM_COLUMNS}.`,
    );
  }
  return { starts, end, allocated: Math.max(32, 2 ** Math.ceil(Math.log2(end))) };
}

export function tmemCode(ref, dtype) {
  const packed = ref.bits < 32 ? `, packed=${ref.packed ? "True" : "False"}` : "";
  const collective = ref.collective ? ", collective=True" : "";
  return `plgpu.TMEM(${pythonTuple(ref.shape)}, jnp.${dtype}${packed}${collective})`;
}

// ---- bank conflicts ----

/**
 * A store of an array between registers and shared memory: see banks.Transfer. `offsets[(warp *
 * registers + register) * 32 + lane]` is where a lane's register begins, in bytes. In each of
 * `turns` turns a warp needs `fronts` wavefronts of `lanes` slots; `slotLanes` names their lanes,
 * and `words[((warp * turns + turn) * slots + slot) * perSlot + i]` the words they touch.
 * `degrees[(warp * turns + turn) * fronts + front]` is the most different words of a bank.
 */
export function transferOf(layout, ref, map = memoryMap(ref), arch = "sm_90a") {
  if (!ARCHS.includes(arch)) throw new Error(`arch = '${arch}' is none of 'sm_90a' or 'sm_100a'.`);
  const held = layoutElements(layout, map.shape);
  const bits = held.vector * ref.bits;
  checkVector(held.vector, bits);
  const places = map.bits;
  const apart = distance(places, held, ref.bits);
  const turned = apart ? columnsOf(layout, held, places, ref.bits) : null;
  const columns = ref.bits === 8 && arch !== "sm_100a" ? null : turned;
  if (apart && !columns) throw new Error(whyNot(held.vector, apart, turned));
  const offsets = offsetsOf(held, places);
  const laneBytes = bits / 8;
  const lanes = LANES / Math.max(1, laneBytes / 4); // slots of a wavefront
  const plainStarts = upTo(held.registers).map((r) =>
    map.plain[held.elements[r * held.vector]] - map.plain[held.elements[0]]);
  const moved = columns ?? vectorWords(held.registers, laneBytes, offsets);
  const transfer = {
    registers: held.registers, laneBytes, offsets, lanes, plainStarts, splat: layout.kind === "splat", ...moved,
    turns: moved.groups.length, slots: moved.slotLanes.length, fronts: moved.slotLanes.length / lanes,
  };
  Object.assign(transfer, degreesOf(transfer));
  const rows = layout.kind === "tiled" && transfer.degree === 1 && isRows(offsets, laneBytes);
  return { ...transfer, form: columns ? "column" : rows ? "row" : "vector" };
}

const ARCHS = ["sm_90a", "sm_100a"];

function offsetsOf({ registers, vector, elements }, places) {
  const offsets = new Int32Array(THREADS * registers);
  for (let thread = 0; thread < THREADS; thread++) {
    const warp = thread >> 5;
    for (let register = 0; register < registers; register++) {
      const first = places[elements[(thread * registers + register) * vector]];
      offsets[(warp * registers + register) * LANES + (thread & 31)] = first >> 3;
    }
  }
  return offsets;
}

/** 0 where a register's elements are neighbours, else how far they are apart, in bits. */
function distance(places, { vector, elements }, step) {
  let worst = 0;
  for (let first = 0; first < elements.length; first += vector) {
    for (let p = first + 1; p < first + vector; p++) {
      const by = places[elements[p]] - places[elements[p - 1]];
      if (by !== step) worst = Math.max(worst, Math.abs(by));
    }
  }
  return worst;
}

function whyNot(vector, apart, turned) {
  const only = turned ? " (stmatrix turns 8-bit elements on Blackwell, sm_100a, only)" : "";
  return (
    `The ${vector} elements of a register are not neighbours in memory (they are up to ` +
    `${apart / 8} bytes apart), so no store moves them${only}. For a transposed ref take ` +
    "WGMMA_TRANSPOSED or TCGEN05_TRANSPOSED, else a tile whose last axis runs along the register."
  );
}

function vectorWords(registers, laneBytes, offsets) {
  const perSlot = Math.max(1, laneBytes / 4);
  const words = new Int32Array(offsets.length * perSlot);
  for (let i = 0; i < words.length; i++) words[i] = (offsets[Math.floor(i / perSlot)] >> 2) + (i % perSlot);
  return { words, perSlot, slotLanes: upTo(LANES), groups: upTo(registers).map((r) => [r]) };
}

/** Whether each four lanes in a row hold 16 neighbouring bytes, 4 bytes each. */
function isRows(offsets, laneBytes) {
  if (laneBytes !== 4) return false;
  for (let i = 0; i < offsets.length; i++) {
    if (i % 4 ? offsets[i] !== offsets[i - 1] + 4 : offsets[i] % 16) return false;
  }
  return true;
}

/** How stmatrix.trans moves the registers, or null: see layouts/matrices.py. */
function columnsOf(layout, held, places, bits) {
  const lanes = layout.kind === "tiled" ? layout.lane_dims : [];
  if (lanes.length !== 2 || lanes.some((dim) => typeof dim !== "number")) return null;
  if (bits === 8 && lanes[0] > lanes[1]) return null; // JAX has no such transfer
  if (![8, 16].includes(bits) || held.vector * bits !== 32) return null;
  const { registers, vector, elements } = held;
  const at = (warp, lane, register, i) =>
    places[elements[((warp * LANES + lane) * registers + register) * vector + i]];
  for (let p = 0; p < elements.length; p++) {
    const lane = Math.floor(p / (registers * vector)) % LANES;
    const first = places[elements[p - (lane - (lane % 4)) * registers * vector]];
    if (places[elements[p]] !== first + (lane >> 2) * bits) return null;
    if (bits === 16 && lane < 4 && first % 128) return null;
  }
  const groups = bits === 16 ? upTo(registers).map((r) => [r]) : pairsOf(at, registers, vector);
  if (!groups) return null;
  const halves = [0, 1].map((half) => upTo(LANES).filter((lane) => (lane % 4) >> 1 === half));
  const slots = bits === 16 ? upTo(LANES).map((lane) => [lane, 0])
    : halves.flatMap((half) => [0, 1].flatMap((k) => half.map((lane) => [lane, k])));
  const words = new Int32Array(WARPS * groups.length * slots.length * vector);
  let place = 0;
  for (let warp = 0; warp < WARPS; warp++) {
    for (const group of groups) {
      for (const [lane, k] of slots) {
        for (let i = 0; i < vector; i++) words[place++] = at(warp, lane, group[k], i) >> 5;
      }
    }
  }
  return { words, perSlot: vector, slotLanes: slots.map(([lane]) => lane), groups };
}

/** Pairs of registers whose elements lie 8 bytes apart, or null. */
function pairsOf(at, registers, vector) {
  const byStart = new Map(upTo(registers).map((r) => [at(0, 0, r, 0), r]));
  const evens = upTo(registers).filter((r) => at(0, 0, r, 0) % 128 === 0);
  const pairs = evens.map((r) => [r, byStart.get(at(0, 0, r, 0) + 64)]);
  if (2 * pairs.length !== registers || pairs.some(([, odd]) => odd === undefined)) return null;
  for (let thread = 0; thread < THREADS; thread++) {
    for (const [even, odd] of pairs) {
      for (let i = 0; i < vector; i++) {
        const [warp, lane] = [thread >> 5, thread & 31];
        const first = at(warp, lane, even, i);
        if (at(warp, lane, odd, i) !== first + 64 || (lane < 4 && first % 128)) return null;
      }
    }
  }
  return pairs;
}

function checkVector(vector, bits) {
  if (bits % 8) {
    throw new Error(
      `A register of ${vector} elements has ${bits} bits, which is no whole number of bytes.`,
    );
  }
  if (bits > 8 * MAX_BYTES) {
    throw new Error(
      `A register of ${bits / 8} bytes is more than the ${MAX_BYTES} that a lane transfers at once.`,
    );
  }
}

function degreesOf({ turns, fronts, lanes, perSlot, words }) {
  const degrees = new Uint8Array(WARPS * turns * fronts);
  const wide = lanes * perSlot; // words of a wavefront
  const asked = new Int32Array(BANKS * wide); // for each bank, the different words so far
  const count = new Int32Array(BANKS);
  let wavefronts = 0;
  let degree = 0;
  for (let front = 0; front < degrees.length; front++) {
    count.fill(0);
    let most = 0;
    for (let i = front * wide; i < (front + 1) * wide; i++) {
      const bank = words[i] % BANKS;
      const end = bank * wide + count[bank];
      let k = bank * wide;
      while (k < end && asked[k] !== words[i]) k++;
      if (k < end) continue; // a broadcast
      asked[k] = words[i];
      if (++count[bank] > most) most = count[bank];
    }
    degrees[front] = most;
    wavefronts += most;
    if (most > degree) degree = most;
  }
  return { degrees, degree, wavefronts, least: degrees.length };
}

/** What each bank is asked for in one wavefront: [{bank, words, lanes}] in the order of banks. */
export function bankUses(transfer, warp, turn, front) {
  const { turns, slots, lanes, perSlot, words, slotLanes } = transfer;
  const byBank = new Map();
  for (let slot = front * lanes; slot < (front + 1) * lanes; slot++) {
    const first = ((warp * turns + turn) * slots + slot) * perSlot;
    for (const word of words.subarray(first, first + perSlot)) {
      const bank = byBank.get(word % BANKS) ?? new Map();
      byBank.set(word % BANKS, bank);
      bank.set(word, (bank.get(word) ?? new Set()).add(slotLanes[slot]));
    }
  }
  return [...byBank].sort(([a], [b]) => a - b).map(([bank, found]) => {
    const sorted = [...found].sort(([a], [b]) => a - b);
    const own = sorted.map(([, lanesOfWord]) => [...lanesOfWord].sort((a, b) => a - b));
    return { bank, words: sorted.map(([word]) => word), lanes: own };
  });
}

/** A wavefront in a sentence or two. */
export function conflictReason(transfer, warp, turn, front) {
  const uses = bankUses(transfer, warp, turn, front);
  const worst = uses.reduce((a, b) => (b.words.length > a.words.length ? b : a));
  const asked = `${uses.length} of ${BANKS} banks are used`;
  const told = sharing(transfer, Math.max(1, ...uses.flatMap((use) => use.lanes.map((own) => own.length))));
  if (worst.words.length === 1) {
    return `No conflict: each bank is asked for one word; ${asked}.${told}`;
  }
  const who = worst.words.map((word, i) => `${lanesInWords(worst.lanes[i])} word ${word}`);
  return (
    `${worst.words.length}-way conflict: bank ${worst.bank} is asked for ${worst.words.length} ` +
    `different words (${who.join("; ")}), one after the other; ${asked}.${told}`
  );
}

/** What it means that `most` lanes have to do with one word. */
function sharing({ form }, most) {
  if (most === 1) return "";
  if (form === "column") return ` A word is made of the elements of ${most} lanes: stmatrix.trans turns them.`;
  return ` Up to ${most} lanes share a word: a broadcast, no conflict.`;
}

function lanesInWords(lanes) {
  const most = 6;
  if (lanes.length > most) return `lanes ${lanes.slice(0, most).join(", ")}, ... (${lanes.length}) want`;
  return lanes.length === 1 ? `lane ${lanes[0]} wants` : `lanes ${listWords(lanes, "and")} want`;
}

/** A way to transfer without conflicts where half of the lanes go ahead, or null. */
export function staggerOf(transfer) {
  const { registers, form, plainStarts } = transfer;
  if (form === "column") return null;
  for (let step = 1; step < registers; step *= 2) {
    if (plainStarts[step] % (BANKS * 32) === 0) continue; // whole rows further: JAX does not look there
    for (let period = 2; registers % (step * period) === 0; period *= 2) {
      const even = upTo(period).every((i) => plainStarts[i * step] === i * plainStarts[step]);
      if (!even) continue; // several axes of the tiled array
      for (let group = 1; group <= 16; group *= 2) {
        for (let ahead = 1; ahead < period; ahead++) {
          const plan = { group, ahead, period, step };
          if (!conflictsWhenStaggered(transfer, plan)) return plan;
        }
      }
    }
  }
  return null;
}

/** Whether any wavefront has a conflict; most plans fail at the first. */
function conflictsWhenStaggered({ registers, laneBytes, lanes, offsets }, plan) {
  const words = Math.max(1, laneBytes / 4);
  const asked = new Int32Array(BANKS);
  for (let row = 0; row < WARPS * registers; row++) {
    const turn = Math.floor((row % registers) / plan.step) % plan.period;
    const other = row + (((turn + plan.ahead) % plan.period) - turn) * plan.step;
    for (let lane = 0; lane < LANES; lane++) {
      if (lane % lanes === 0) asked.fill(-1);
      const late = Math.floor(lane / plan.group) % 2;
      const first = offsets[(late ? other : row) * LANES + lane] >> 2;
      for (let word = first; word < first + words; word++) {
        const bank = word % BANKS;
        if (asked[bank] !== -1 && asked[bank] !== word) return true;
        asked[bank] = word;
      }
    }
  }
  return false;
}

/** The whole transfer in a sentence or two. */
export function transferSummary(transfer) {
  if (transfer.splat) return "All elements are equal: any thread may store any of them.";
  const plain = `${instructionOf(transfer)}; ${transfer.least} wavefronts without conflicts.`;
  if (transfer.degree === 1) return `Free of bank conflicts. ${plain}`;
  return `${transfer.degree}-way bank conflicts, ${transfer.wavefronts} wavefronts. ${plain} ${mended(transfer)}`;
}

function instructionOf({ form, laneBytes }) {
  if (form === "vector") return `Each lane transfers ${laneBytes} bytes at once`;
  const name = form === "row" ? "stmatrix" : "stmatrix.trans";
  return `${name} moves matrices of 8 rows of 16 bytes, each in one wavefront`;
}

/** What JAX does about conflicts. */
function mended(transfer) {
  const refused = "so JAX refuses the transfer unless you pass optimized=False.";
  if (transfer.form === "column") return `Nothing mends it, ${refused}`;
  const plan = staggerOf(transfer);
  if (!plan) return `No staggering of two halves of the lanes mends it, ${refused}`;
  return (
    `JAX staggers it: lanes l with l // ${plan.group} odd transfer the register ` +
    `${plan.ahead * plan.step} further, which is free of conflicts.`
  );
}
