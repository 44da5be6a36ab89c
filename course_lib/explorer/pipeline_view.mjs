// A software pipeline: what each slot of shared memory does, and when the tensor cores work.
// The twin of course_lib/layouts/pipeline.py.
import { renderView } from "./kit.mjs";

export const MAX_STEPS = 64;
const NAMES4 = ["steps", "stages", "latency", "issue", "mma"];
const LOADING = "#e69f00";
const FULL = "#56b4e9";
const COMPUTING = "#009e73";
const COLOURS_OF_SLOTS = [LOADING, FULL, COMPUTING];

/** [issued, arrived, MMA begins, MMA ends] of every step. */
export function pipelineTimes({ steps, stages, latency, issue, mma }) {
  const times = [];
  for (let k = 0; k < steps; k++) {
    const free = k >= stages ? times[k - stages][3] : 0;
    const issued = k ? Math.max(free, times[k - 1][0] + issue) : 0;
    const arrived = issued + latency;
    const begins = k ? Math.max(arrived, times[k - 1][3]) : arrived;
    times.push([issued, arrived, begins, begins + mma]);
  }
  return times;
}

export function checkPipeline(p) {
  for (const name of NAMES4) {
    if (!(p[name] >= 1 && p[name] <= MAX_STEPS)) {
      throw new Error(`${name} = ${p[name]} does not fit: take 1 to ${MAX_STEPS}.`);
    }
  }
}

const totalOf = (p) => pipelineTimes(p).at(-1)[3];

export function stagesNeeded(p) {
  const best = totalOf({ ...p, stages: p.steps });
  for (let stages = 1; ; stages++) if (totalOf({ ...p, stages }) === best) return stages;
}

export function pipelineWaits(p) {
  const times = pipelineTimes(p);
  return times.at(-1)[3] - times[0][2] - p.steps * p.mma;
}

export function pipelineSummary(p) {
  const work = p.work ?? "MMA";
  const [who, does, each, are] = work === "MMA" ? ["the tensor cores", "wait", "MMA", "are"]
    : [`the ${work}`, "waits", work, "is"];
  const needed = stagesNeeded(p);
  const head =
    `${p.steps} steps with ${p.stages} stage${p.stages === 1 ? "" : "s"} take ${totalOf(p)}; ${who} ` +
    `${does} ${pipelineWaits(p)} of it between the first ${each} and the last.`;
  if (p.stages < needed) return `${head} Too shallow: ${needed} stages would hide the latency of the loads.`;
  if (p.issue > p.mma) return `${head} Memory cannot deliver faster: more stages do not help.`;
  const more = p.stages > needed ? `; ${needed} would do` : "";
  return `${head} Deep enough: ${who} ${are} the limit${more}.`;
}

function studyPipeline(state) {
  checkPipeline(state);
  if (!/^[\w -]{1,20}$/.test(state.work)) throw new Error("A step's work: name it in 1 to 20 letters.");
  const times = pipelineTimes(state);
  const cols = times.at(-1)[3];
  const slots = new Int16Array(state.stages * cols).fill(-1);
  const units = new Int16Array(2 * cols).fill(-1);
  const stepOf = [new Int16Array(slots.length).fill(-1), new Int16Array(units.length).fill(-1)];
  const fill = (panel, value, row, from, to, k) => {
    for (let t = from; t < Math.min(to, cols); t++) {
      (panel ? units : slots)[row * cols + t] = value;
      stepOf[panel][row * cols + t] = k;
    }
  };
  times.forEach(([issued, arrived, begins, ends], k) => {
    const slot = k % state.stages;
    fill(0, 0, slot, issued, arrived, k);
    fill(0, 1, slot, arrived, begins, k);
    fill(0, 2, slot, begins, ends, k);
    fill(1, 0, 0, issued, issued + state.issue, k);
    fill(1, 2, 1, begins, ends, k);
  });
  const shared = {
    cols, palette: COLOURS_OF_SLOTS, widest: 40, tallest: 28, shortest: 24, colTitle: "time", colName: String,
  };
  return {
    times, stepOf, cols,
    panels: [
      { ...shared, title: "Slots of shared memory", rows: state.stages, value: slots, rowTitle: "slot",
        rowName: String, label: (i) => (stepOf[0][i] < 0 ? "" : String(stepOf[0][i])) },
      { ...shared, title: `Loads issued, and ${state.work === "MMA" ? "MMAs" : `the ${state.work}`}`, rows: 2, value: units, rowTitle: "unit",
        rowName: (r) => ["TMA", state.work][r], side: state.work.length > 6 ? 90 : undefined, label: (i) => (stepOf[1][i] < 0 ? "" : String(stepOf[1][i])) },
    ],
    legend: [[LOADING, "loading"], [FULL, state.work === "MMA" ? "full, waits for the tensor cores" : `full, waits for the ${state.work}`],
      [COMPUTING, state.work === "MMA" ? "being computed on" : `in the ${state.work}`],
      ["var(--mgx-empty)", "empty"]],
    sentence: pipelineSummary(state),
    table: [
      [state.work === "MMA" ? "The tensor cores work" : `The ${state.work} works`, `${Math.round((100 * state.steps * state.mma) / cols)}% of the time from the first load to the last ${state.work}`],
      ["Stages that hide the latency", String(stagesNeeded(state))],
    ],
    code: pipelineCode(state),
  };
}

function pipelineCode({ steps, stages }) {
  return `import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

tile = plgpu.BlockSpec((64, 64), lambda i: (i, 0))

def body(x_gmem, o_gmem):
    def step(indices, x_smem, o_smem):
        o_smem[...] = x_smem[...] * 2

    plgpu.emit_pipeline(
        step, grid=(${steps},), in_specs=[tile], out_specs=[tile], max_concurrent_steps=${Math.min(stages, steps)}
    )(x_gmem, o_gmem)

kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((${64 * steps}, 64), jnp.float32))
x = jax.random.normal(jax.random.key(0), (${64 * steps}, 64))
`;
}

function pointPipeline(s, state, panel, cell) {
  const k = panel < 0 ? -1 : s.stepOf[panel][cell];
  if (k < 0) {
    const text = panel < 0 ? "Point at a cell to follow one step: numbers in the cells are steps." : `Time ${cell % s.cols}: nothing here.`;
    return { marks: panel < 0 ? [[], []] : panel ? [[], [cell]] : [[cell], []], text };
  }
  const marks = s.stepOf.map((steps) => Array.from(steps.keys()).filter((i) => steps[i] === k));
  const [issued, arrived, begins, ends] = s.times[k];
  const wait = begins > arrived ? ` It lies there for ${begins - arrived}.` : "";
  const before = k ? s.times[k - 1][3] : begins;
  const starved = begins > before ? ` ${state.work === "MMA" ? "The tensor cores have" : `The ${state.work} has`} waited ${begins - before} for it.` : "";
  return {
    marks,
    text: `Step ${k}, slot ${k % state.stages}: load issued at ${issued}, arrived at ${arrived}; ${state.work} from ${begins} to ${ends}.${wait}${starved}`,
  };
}

export const pipelineSpec = {
  name: "pipeline",
  label: "Pipelines: loads that hide behind the tensor cores",
  state: { steps: 12, stages: 3, latency: 8, issue: 2, mma: 4, work: "MMA" },
  fields: [
    ["stages", "Stages", "number"],
    ["steps", "Steps along K", "number"],
    ["latency", "Latency of a load", "number"],
    ["issue", "Time between loads", "number"],
    ["mma", "Time of a step's work", "number"],
    ["work", "A step's work", "text"],
  ],
  stacked: true,
  study: studyPipeline,
  point: pointPipeline,
  pick: () => null,
};

export default { render: (given) => renderView(pipelineSpec, given) };
