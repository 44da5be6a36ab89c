// What the schedule view computes, without a page to show it on.
import { scheduleSpec as spec } from "../../course_lib/explorer/schedule_view.mjs";

export const state = () => spec.state;

export function study(changes) {
  const shown = spec.study({ ...spec.state, ...changes });
  return {
    sentence: shown.sentence, code: shown.code, table: shown.table, made: shown.made,
    steps: spec.steps(shown),
    panels: shown.panels.map(({ rows, cols, value, palette, label }) => ({
      rows, cols, palette, value: Array.from(value),
      labels: Array.from(value, (v, i) => label(i)),
    })),
  };
}

/** What is said and marked when one points at a cell. */
export function point(changes, panel, cell) {
  const now = { ...spec.state, ...changes };
  return spec.point(spec.study(now), now, panel, cell);
}

export function pick(changes, panel, cell) {
  const now = { ...spec.state, ...changes };
  return spec.pick(spec.study(now), now, panel, cell);
}
