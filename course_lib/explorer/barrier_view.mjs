// Barriers step by step: what each thread did, and which phase each barrier is in.
// The twin of course_lib/layouts/phases.py.
import { renderView } from "./kit.mjs";

const ACTOR_PALETTE = ["#56b4e9", "#e69f00", "#009e73", "#7a7a7a"];
const BARRIER_PALETTE = ["#0072b2", "#f0e442", "#d55e00"];
const BLOCKED = 3;
const MISSED = 2;

const writes = (i) => ["write", -1, i];
const reads = (i) => ["read", -1, i];
const arrives = (barrier) => ["arrive", barrier, -1];
const waits = (barrier) => ["wait", barrier, -1];
const goes = ["go", -1, -1];
const threads = (...bodies) => bodies.map((body, i) => [`thread ${i}`, body]);
const times = (count, body) => Array.from({ length: count }, (_, i) => body(i)).flat();

export const PROGRAMS = {
  "hand-over": {
    barriers: [["ready", 1]], slots: 1,
    actors: threads([writes(0), arrives(0)], [waits(0), reads(0)]),
  },
  arrivals: {
    barriers: [["ready", 2]], slots: 2,
    actors: threads([writes(0), arrives(0)], [writes(1), arrives(0)], [waits(0), reads(0), reads(1)]),
  },
  copies: {
    barriers: [["loaded", 2]], slots: 2,
    actors: [
      ["thread 0", [["issue", 0, 0], ["issue", 0, 1], waits(0), reads(0), reads(1)]],
      ["TMA", [["land", 0, 0], ["land", 0, 1]]],
    ],
  },
  eager: {
    barriers: [["ready", 1]], slots: 1,
    actors: threads(times(3, (i) => [writes(i), arrives(0)]), times(3, (i) => [waits(0), reads(i)])),
  },
  queue: {
    barriers: [["produced", 1], ["consumed", 1]], slots: 1,
    actors: threads(
      [...times(3, (i) => [...(i ? [waits(1)] : []), writes(i), arrives(0)]), waits(1)],
      times(3, (i) => [waits(0), reads(i), arrives(1)]),
    ),
  },
  skipped: {
    barriers: [["go", 1], ["back", 1]], slots: 1,
    actors: threads(times(2, () => [arrives(0), waits(1)]), times(2, () => [waits(0), arrives(1)]), [waits(0), goes]),
  },
};
const ORDERS = ["turns", "0", "1", "2"];
const KIND_OF = { write: 0, read: 0, go: 0, issue: 0, arrive: 1, land: 1, wait: 2 };
const WORDS = {
  write: (i) => `writes item ${i}`,
  read: (i) => `reads item ${i}`,
  issue: (i) => `starts the copy of item ${i}`,
  go: () => "goes on",
};
const LABELS = { write: "write", read: "read", issue: "copy", go: "…", arrive: "arrive", land: "arrive", wait: "wait" };

const capital = (text) => text[0].toUpperCase() + text.slice(1);

// ---- the machine ----

/** A program from its first step to where nobody can go on; see phases.Run. */
export class BarrierRun {
  constructor({ program, order, picks }) {
    this.program = PROGRAMS[program];
    this.at = this.program.actors.map(() => 0);
    this.completions = this.program.barriers.map(() => 0);
    this.arrivals = this.program.barriers.map(() => 0);
    this.waits = this.at.map(() => this.program.barriers.map(() => 0));
    this.inFlight = 0;
    this.held = new Array(this.program.slots).fill(-1);
    this.events = [];
    for (const digit of picks) if (/\d/.test(digit) && this.canGo(Number(digit))) this.go(Number(digit));
    this.goOn(order);
  }

  goOn(order) {
    const count = this.at.length;
    let last = this.events.length ? this.events.at(-1).actor : count - 1;
    for (;;) {
      const first = order === "turns" ? (last + 1) % count : Math.min(Number(order), count - 1);
      const able = this.at.map((_, k) => (first + k) % count).find((a) => this.canGo(a));
      if (able === undefined) return;
      last = able;
      this.go(able);
    }
  }

  next(actor) {
    return this.program.actors[actor]?.[1][this.at[actor]];
  }

  canGo(actor) {
    const op = this.next(actor);
    if (!op) return false;
    if (op[0] === "land") return this.inFlight > 0;
    return op[0] !== "wait" || this.passes(actor, op[1]);
  }

  /** The hardware's test: is the phase under way of another parity than the one asked for? */
  passes(actor, barrier) {
    return Math.abs(this.completions[barrier] - this.waits[actor][barrier]) % 2 === 1;
  }

  go(actor) {
    const op = this.next(actor);
    const [kind, barrier, item] = op;
    this.at[actor] += 1;
    let phase = 0;
    if (kind === "wait") phase = this.waits[actor][barrier] += 1;
    else if (kind === "arrive" || kind === "land") {
      phase = this.completions[barrier] + 1;
      this.arrive(barrier);
    }
    this.inFlight += { issue: 1, land: -1 }[kind] ?? 0;
    const slot = item % this.program.slots;
    if (kind === "write" || kind === "land") this.held[slot] = item;
    const found = kind === "read" ? this.held[slot] : -1;
    this.events.push(this.event(actor, op, phase, found));
  }

  arrive(barrier) {
    this.arrivals[barrier] += 1;
    if (this.arrivals[barrier] < this.program.barriers[barrier][1]) return;
    this.arrivals[barrier] = 0;
    this.completions[barrier] += 1;
  }

  event(actor, op, phase, found) {
    const blocked = this.at.map((_, a) => a).filter((a) => this.next(a)?.[0] === "wait" && !this.canGo(a));
    return {
      actor, op, phase, found, blocked,
      completions: [...this.completions],
      arrivals: [...this.arrivals],
      waits: this.waits.map((w) => [...w]),
      late: this.completions.map((_, b) => this.late(b)),
    };
  }

  /** The first actor that waits on a barrier and has two completions to catch up with, else -1. */
  late(barrier) {
    return this.program.actors.findIndex(([, ops], actor) =>
      this.completions[barrier] - this.waits[actor][barrier] > 1 && this.waitsOn(ops, barrier));
  }

  waitsOn(ops, barrier) {
    return ops.some(([kind, b]) => kind === "wait" && b === barrier);
  }

  // -- words --

  sentence(step) {
    if (!step) return "Nothing has happened yet. Every barrier is in phase 1.";
    const said = `Step ${step} of ${this.events.length}: ${this.describe(step - 1)}`;
    return step < this.events.length ? said : `${said} ${this.ending()}`;
  }

  describe(index) {
    const event = this.events[index];
    const [kind, barrier, item] = event.op;
    const [who] = this.program.actors[event.actor];
    if (WORDS[kind]) {
      const rest = kind === "read" && event.found !== item ? `; item ${item} is lost` : "";
      return `${who} ${WORDS[kind](kind === "read" ? event.found : item)}${rest}.`;
    }
    const [name, needed] = this.program.barriers[barrier];
    if (kind === "wait") return `${who} waits for phase ${event.phase} of ${name}, and it is over.`;
    const what = kind === "land" ? `copy ${item} lands and arrives` : `${who} arrives`;
    if (event.completions[barrier] < event.phase) {
      return `${what} on ${name}: arrival ${event.arrivals[barrier]} of ${needed} of phase ${event.phase}.`;
    }
    const said = `${what} on ${name}: phase ${event.phase} is complete.`;
    if (event.late[barrier] < 0) return said;
    const behind = capital(this.program.actors[event.late[barrier]][0]);
    return `${said} ${behind} has not waited for phase ${event.phase - 1} yet.`;
  }

  ending() {
    const stuck = this.at.map((_, a) => a).filter((a) => this.next(a));
    if (stuck.length) return stuck.map((a) => this.stuck(a)).join(" ");
    for (const [barrier, [name]] of this.program.barriers.entries()) {
      for (const [actor, [who, ops]] of this.program.actors.entries()) {
        const [done, waited] = [this.completions[barrier], this.waits[actor][barrier]];
        if (this.waitsOn(ops, barrier) && waited < done) {
          return `Done, but ${who} waited for ${waited} of the ${done} phases of ${name}.`;
        }
      }
    }
    return "Done: every completion was waited for.";
  }

  stuck(actor) {
    const barrier = this.next(actor)[1];
    const who = capital(this.program.actors[actor][0]);
    const [asked, now] = [this.waits[actor][barrier] + 1, this.completions[barrier] + 1];
    const said = `${who} is stuck: it waits for phase ${asked} of ${this.program.barriers[barrier][0]}`;
    if (asked === now) return `${said}, and nobody is left who could complete it.`;
    const parity = (asked - 1) % 2;
    return `${said} (parity ${parity}), and phase ${now} is under way, of parity ${parity} too.`;
  }
}

// ---- the view ----

/** `picks` belong to one program and order: "eager/turns:0010". */
function picksOf(state) {
  const [whose, digits] = state.picks.split(":");
  return whose === `${state.program}/${state.order}` ? (digits ?? "") : "";
}

function studyBarriers(state) {
  if (!PROGRAMS[state.program]) throw new Error(`There is no program ${state.program}.`);
  if (!ORDERS.includes(state.order)) throw new Error(`There is no order ${state.order}.`);
  const run = new BarrierRun({ ...state, picks: picksOf(state) });
  const count = run.events.length;
  const step = Math.max(0, Math.min(count, state.step));
  const { actors, barriers } = run.program;
  const cells = [new Int16Array(actors.length * count).fill(-1), new Int16Array(barriers.length * count).fill(-1)];
  run.events.slice(0, step).forEach((event, column) => {
    for (const actor of event.blocked) cells[0][actor * count + column] = BLOCKED;
    cells[0][event.actor * count + column] = KIND_OF[event.op[0]];
    event.completions.forEach((done, b) => {
      cells[1][b * count + column] = event.late[b] >= 0 ? MISSED : done % 2;
    });
  });
  const shared = { cols: count, widest: 64, tallest: 30, shortest: 26, side: 66, colTitle: "step", colName: (c) => String(c + 1) };
  return {
    run, step, count,
    panels: [
      { ...shared, title: "Who did what", rows: actors.length, value: cells[0], palette: ACTOR_PALETTE,
        rowTitle: "", rowName: (r) => actors[r][0], label: (i) => actorLabel(run, step, i, count) },
      { ...shared, title: "The phase that is under way, and the arrivals it has", rows: barriers.length,
        value: cells[1], palette: BARRIER_PALETTE, rowTitle: "", rowName: (r) => barriers[r][0],
        label: (i) => barrierLabel(run, step, i, count) },
    ],
    legend: [
      [ACTOR_PALETTE[0], "reads, writes, starts a copy"], [ACTOR_PALETTE[1], "arrives"],
      [ACTOR_PALETTE[2], "its wait is over"], [ACTOR_PALETTE[3], "has to wait"],
      [BARRIER_PALETTE[0], "phase 1, 3, … under way (parity 0)"], [BARRIER_PALETTE[1], "phase 2, 4, … (parity 1)"],
      [BARRIER_PALETTE[2], "a phase was missed"], ["var(--mgx-empty)", "not its turn, or not yet"],
    ],
    sentence: run.sentence(step),
    table: tableOf(run, step),
    code: CODE[state.program],
  };
}

function actorLabel(run, step, i, count) {
  const [row, column] = [Math.floor(i / count), i % count];
  if (column >= step) return "";
  const event = run.events[column];
  return event.actor === row ? LABELS[event.op[0]] : "";
}

function barrierLabel(run, step, i, count) {
  const [row, column] = [Math.floor(i / count), i % count];
  if (column >= step) return "";
  const { completions, arrivals } = run.events[column];
  const needed = run.program.barriers[row][1];
  return needed > 1 ? `${completions[row] + 1}: ${arrivals[row]}/${needed}` : String(completions[row] + 1);
}

/** The state after a step: each barrier, and what each actor does next. */
function tableOf(run, step) {
  const after = run.events[step - 1];
  const at = run.program.actors.map((_, a) => run.events.slice(0, step).filter((e) => e.actor === a).length);
  const rows = run.program.barriers.map(([name, needed], b) => {
    const done = after ? after.completions[b] : 0;
    const waited = run.program.actors
      .map(([who, ops], a) => [who, ops, after ? after.waits[a][b] : 0])
      .filter(([, ops]) => run.waitsOn(ops, b))
      .map(([who, , count]) => `${who} has waited for ${count}`);
    return [name, `phase ${done + 1}, parity ${done % 2}; ${after ? after.arrivals[b] : 0} of ${needed} arrivals; completed: ${done}; ${waited.join(", ")}`];
  });
  return [...rows, ...run.program.actors.map(([who, ops], a) => [`${who}, next`, nextWords(run, ops[at[a]])])];
}

function nextWords(run, op) {
  if (!op) return "nothing, it is done";
  const [kind, barrier, item] = op;
  if (WORDS[kind]) return WORDS[kind](item);
  const [name] = run.program.barriers[barrier];
  return { arrive: `arrives on ${name}`, land: `copy ${item} lands and arrives on ${name}`, wait: `waits for ${name}` }[kind];
}

function pointBarriers(s, state, panel, cell) {
  if (panel < 0 || cell < 0) {
    const text = "Point at a step to read what happened in it. Click a thread's row to let that thread go next.";
    return { marks: [[], []], text };
  }
  const [row, column] = [Math.floor(cell / s.count), cell % s.count];
  const mark = (rows) => Array.from({ length: rows }, (_, r) => r * s.count + column);
  const marks = [mark(s.run.program.actors.length), mark(s.run.program.barriers.length)];
  if (column < s.step) return { marks, text: `Step ${column + 1}: ${s.run.describe(column)}` };
  const who = panel ? "" : ` Click to let ${s.run.program.actors[row][0]} go next.`;
  return { marks, text: `Step ${column + 1} has not happened yet.${who}` };
}

/** A click on an actor's row: that actor makes the next step, if it can. */
function pickBarriers(s, state, panel, cell) {
  if (panel !== 0) return { step: Math.min(s.count, (cell % s.count) + 1) };
  const row = Math.floor(cell / s.count);
  const before = s.run.events.slice(0, s.step).map((event) => event.actor).join("");
  const whose = `${state.program}/${state.order}:`;
  const after = new BarrierRun({ ...state, picks: `${before}${row}` });
  if (after.events[s.step]?.actor !== row) return null; // it cannot go on
  return { picks: `${whose}${before}${row}`, step: s.step + 1 };
}

const HEAD_OF_CODE = `import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

`;

/** A kernel of \`count\` threads whose bodies are given, each a list of lines. */
function kernelCode({ items, scratch, bodies }) {
  const body = bodies.flatMap((lines, t) => [
    `    @pl.when(thread == ${t})`, `    def thread${t}():`, ...lines.map((line) => `        ${line}`), ""]);
  const names = scratch.map(([name]) => name);
  return `${HEAD_OF_CODE}def body(x_gmem, y_gmem, ${names.join(", ")}):
    thread = jax.lax.axis_index("thread")

${body.join("\n").trimEnd()}

kernel = plgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((${items}, 128), jnp.float32),
    num_threads=${bodies.length},
    thread_name="thread",
    scratch_types=dict(
${scratch.map(([name, type]) => `        ${name}=${type},`).join("\n")}
    ),
)
x = jax.random.normal(jax.random.key(0), (${items}, 128))
`;
}

const SLOT = (slots) => ["slot_smem", `plgpu.SMEM((${slots}, 128), jnp.float32)`];
const ONE = "plgpu.Barrier()";
const TWO = "plgpu.Barrier(num_arrivals=2)";
const loop = (count, lines) => [`for i in range(${count}):`, ...lines.map((line) => `    ${line}`)];
const WRITE = "slot_smem[0] = x_gmem[i]";
const READ = "y_gmem[i] = slot_smem[0]";

const CODE = {
  "hand-over": kernelCode({
    items: 1, scratch: [SLOT(1), ["ready", ONE]],
    bodies: [["slot_smem[0] = x_gmem[0]", "plgpu.barrier_arrive(ready)"], ["plgpu.barrier_wait(ready)", "y_gmem[0] = slot_smem[0]"]],
  }),
  arrivals: kernelCode({
    items: 2, scratch: [SLOT(2), ["ready", TWO]],
    bodies: [
      ["slot_smem[0] = x_gmem[0]", "plgpu.barrier_arrive(ready)"],
      ["slot_smem[1] = x_gmem[1]", "plgpu.barrier_arrive(ready)"],
      ["plgpu.barrier_wait(ready)", "y_gmem[...] = slot_smem[...]"],
    ],
  }),
  copies: kernelCode({
    items: 2, scratch: [SLOT(2), ["loaded", TWO]],
    bodies: [[
      "plgpu.copy_gmem_to_smem(x_gmem.at[0], slot_smem.at[0], loaded)",
      "plgpu.copy_gmem_to_smem(x_gmem.at[1], slot_smem.at[1], loaded)",
      "plgpu.barrier_wait(loaded)", "y_gmem[...] = slot_smem[...]",
    ]],
  }),
  eager: kernelCode({
    items: 3, scratch: [SLOT(1), ["ready", ONE]],
    bodies: [loop(3, [WRITE, "plgpu.barrier_arrive(ready)"]), loop(3, ["plgpu.barrier_wait(ready)", READ])],
  }),
  queue: kernelCode({
    items: 3, scratch: [SLOT(1), ["produced", ONE], ["consumed", ONE]],
    bodies: [
      [...loop(3, ["if i:", "    plgpu.barrier_wait(consumed)", WRITE, "plgpu.barrier_arrive(produced)"]), "plgpu.barrier_wait(consumed)"],
      loop(3, ["plgpu.barrier_wait(produced)", READ, "plgpu.barrier_arrive(consumed)"]),
    ],
  }),
  skipped: kernelCode({
    items: 1, scratch: [["go", ONE], ["back", ONE]],
    bodies: [
      loop(2, ["plgpu.barrier_arrive(go)", "plgpu.barrier_wait(back)"]),
      loop(2, ["plgpu.barrier_wait(go)", "plgpu.barrier_arrive(back)"]),
      ["plgpu.barrier_wait(go)  # once, and go completes twice", "y_gmem[...] = x_gmem[...]"],
    ],
  }),
};

export const barrierSpec = {
  name: "barriers",
  label: "Barriers step by step: arrivals, phases and waits",
  state: { program: "hand-over", order: "turns", step: 0, picks: "" },
  fields: [
    ["program", "Program", [
      ["hand-over", "one item, handed over"], ["arrivals", "two producers, two arrivals"],
      ["copies", "two copies, two arrivals"], ["eager", "three items, no back-pressure"],
      ["queue", "three items, with back-pressure"], ["skipped", "a thread that waits once only"],
    ]],
    ["order", "Who goes first", [
      ["turns", "all in turn"], ["0", "thread 0, as far as it can"],
      ["1", "thread 1, as far as it can"], ["2", "thread 2, as far as it can"],
    ]],
    ["step", "Step", "number"],
  ],
  stacked: true,
  step: "step",
  steps: (study) => study.count + 1,
  study: studyBarriers,
  point: pointBarriers,
  pick: pickBarriers,
};

export default { render: (given) => renderView(barrierSpec, given) };
