// What the layout views compute, without a page to show it on.
import { bankSpec } from "../../course_lib/explorer/bank_view.mjs";
import { pipelineSpec } from "../../course_lib/explorer/pipeline_view.mjs";
import { registerSpec } from "../../course_lib/explorer/register_view.mjs";
import { smemSpec } from "../../course_lib/explorer/smem_view.mjs";
import { tmemSpec } from "../../course_lib/explorer/tmem_view.mjs";
import { timelineSpec } from "../../course_lib/explorer/timeline_view.mjs";

const specs = { smem: smemSpec, registers: registerSpec, banks: bankSpec, tmem: tmemSpec,
  pipeline: pipelineSpec, timeline: timelineSpec };

export const state = (name) => specs[name].state;

export function study(name, changes) {
  const spec = specs[name];
  const shown = spec.study({ ...spec.state, ...changes });
  return {
    sentence: shown.sentence,
    code: shown.code,
    panels: shown.panels.map(({ title, rows, cols, value, palette }) => ({
      title, rows, cols, palette, value: Array.from(value),
    })),
  };
}

/** What is said and marked when one points at a cell. */
export function point(name, changes, panel, cell) {
  const spec = specs[name];
  const now = { ...spec.state, ...changes };
  const found = spec.point(spec.study(now), now, panel, cell);
  return { text: found.text, marks: found.marks.map((m) => Array.from(m)), bits: found.bits ?? [] };
}

/** What is said, marked and written of the address bits while the chunks move. */
export function frame(name, changes, t) {
  const spec = specs[name];
  const now = { ...spec.state, ...changes };
  return spec.frame(spec.study(now), now, t);
}

export function pick(name, changes, panel, cell) {
  const spec = specs[name];
  const now = { ...spec.state, ...changes };
  return spec.pick(spec.study(now), now, panel, cell);
}
