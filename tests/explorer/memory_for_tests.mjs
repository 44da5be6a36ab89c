// memory.mjs with plain arrays for results, which JSON can carry.
import * as memory from "../../course_lib/explorer/memory.mjs";

const plain = (value) =>
  ArrayBuffer.isView(value) ? Array.from(value)
    : Array.isArray(value) ? value.map(plain)
      : value && typeof value === "object"
        ? Object.fromEntries(Object.entries(value).map(([k, v]) => [k, plain(v)]))
        : value;

export const map = (ref) => plain(memory.memoryMap(ref));
export const addresses = (ref, indices) => indices.map((i) => memory.byteOffset(ref, i));
export const indicesAt = (ref, slots) => slots.map((s) => memory.indexAt(ref, s));
export const catalog = () => Object.entries(memory.CATALOG).map(([n, e]) => [n, e.code, e.what, e.rank]);
export const { refCode, layoutCode, tmemCode, tiledShape } = memory;

export function layout(name, shape, bits) {
  const made = memory.namedLayout(name, shape, bits);
  const held = memory.layoutElements(made, shape);
  return plain({ ...held, ...memory.layoutHolders(made, shape, held) });
}

export function reduced(name, axis, shape) {
  const made = memory.reduceLayout(memory.CATALOG[name].make([128, 128], 16), axis);
  return plain(memory.layoutElements(made, shape));
}

export function tmem(ref) {
  const made = memory.tmemLayout(ref);
  const held = memory.layoutElements(made, ref.shape);
  const { places } = memory.layoutHolders(made, ref.shape, held);
  return {
    columns: memory.tmemColumns(ref),
    allocated: memory.tmemAllocated(ref),
    places: Array.from(places, (place) => memory.placeParts(held, place)),
  };
}

export function transfer(name, ref, fronts, arch) {
  const made = memory.namedLayout(name, memory.viewShape(ref), ref.bits);
  const t = memory.transferOf(made, ref, memory.memoryMap(ref), arch);
  return {
    ...plain(t),
    summary: memory.transferSummary(t),
    stagger: memory.staggerOf(t),
    reasons: fronts.map(([w, r, f]) => memory.conflictReason(t, w, r % t.turns, f % t.fronts)),
    uses: fronts.map(([w, r, f]) => memory.bankUses(t, w, r % t.turns, f % t.fronts)),
  };
}
