// The learner's own timeline: what each thread and engine did, and on whose line of code.
// The twin of timeline_widget.py; `timeline` is what `timeline_data` makes of a report's.
import { EIGHT, renderView, withThousands } from "./kit.mjs";

const BINS = 200;
const MOST_LANES = 12;
const KINDS5 = ["issue", "memory", "in flight", "wait", "arithmetic"];
const COLOURS5 = [EIGHT[0], EIGHT[4], EIGHT[2], "#b9c0c8", EIGHT[1]];
const MEANINGS5 = ["issues an instruction", "reads or writes memory itself", "an engine at work", "waits", "computes"];
const ROOM_FOR_CODE = 260;
const LETTERS = 38;

/** Lanes whose name contains `lanes`, at most MOST_LANES, each with rows for what overlaps. */
function chosenLanes({ lanes }, wanted) {
  const shown = lanes.map((name, i) => [name, i]).filter(([name]) => name.includes(wanted)).slice(0, MOST_LANES);
  if (!shown.length) throw new Error(`lanes '${wanted}': none of ${lanes.length} has that in its name.`);
  return shown;
}

/** [row, span number] of the spans of a lane: each in the first row that is free by then. */
function rowsOf(spans, lane) {
  const ends = [];
  return spans.flatMap(([of, , start, end], i) => {
    if (of !== lane) return [];
    let row = ends.findIndex((free) => free <= start);
    if (row < 0) row = ends.push(0) - 1;
    ends[row] = end;
    return [[row, i]];
  });
}

function studyTimeline(state) {
  const data = state.timeline;
  if (!data) throw new Error("There is no timeline: explore.pipeline(timeline=report.timeline) gives one.");
  const [from, to] = [state.first, state.last || Math.ceil(data.cycles)];
  if (!(from >= 0 && from < to)) throw new Error(`From ${from} to ${to} cycles: the second must be larger.`);
  const width = (to - from) / BINS;
  const bins = (start, end) => {
    const first = Math.floor((Math.max(start, from) - from) / width);
    return [first, Math.min(BINS, Math.max(first + 1, Math.ceil((Math.min(end, to) - from) / width)))];
  };
  const names = [];
  const placed = []; // [row, span]
  for (const [name, lane] of chosenLanes(data, state.lanes)) {
    const own = rowsOf(data.spans, lane);
    const rows = Math.max(1, ...own.map(([row]) => row + 1));
    placed.push(...own.map(([row, i]) => [names.length + row, i]));
    names.push(name, ...new Array(rows - 1).fill(""));
  }
  const grids = [gridOf(names.length), gridOf(Math.max(1, data.lines.length))];
  for (const [row, i] of placed) {
    const [, kind, start, end, , line] = data.spans[i];
    if (end <= from || start >= to) continue;
    const [first, last] = bins(start, end);
    fill(grids[0], row, first, last, kind, i);
    if (line >= 0) fill(grids[1], line, first, last, kind, i);
  }
  const shared = {
    cols: BINS, palette: COLOURS5, colTitle: "cycles", ticks: roundTimes(from, to, width),
    tallest: 20, shortest: 14, side: ROOM_FOR_CODE, plain: true, // one above the other: the same times
  };
  return {
    data, grids, width, from, placed,
    panels: [
      { ...shared, title: "Threads and engines", rows: names.length, value: grids[0].value,
        rowTitle: "", rowName: (r) => shorten(names[r], 24) },
      { ...shared, title: "Your lines of code", rows: grids[1].value.length / BINS, value: grids[1].value,
        rowTitle: "", rowName: (r) => shorten(lineWords(data, r), LETTERS) },
    ],
    legend: KINDS5.map((_, i) => [COLOURS5[i], MEANINGS5[i]]),
    sentence: sentenceOfTimeline(data), table: busyOf(data), code: "",
  };
}

/** About eight round numbers of cycles, as [column, text]. */
function roundTimes(from, to, width) {
  const power = 10 ** Math.floor(Math.log10((to - from) / 8));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= (to - from) / 8);
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, i) => (first + i) * step)
    .map((time) => [(time - from) / width, withThousands(time)]);
}

function gridOf(rows) {
  return { value: new Int16Array(rows * BINS).fill(-1), span: new Int32Array(rows * BINS).fill(-1) };
}

function fill({ value, span }, row, first, last, kind, i) {
  value.fill(kind, row * BINS + first, row * BINS + last);
  span.fill(i, row * BINS + first, row * BINS + last);
}

const shorten = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);

function lineWords({ lines }, line) {
  if (!lines.length) return "";
  const [where, code] = lines[line];
  return code ? `${where.replace(/^.*(:|, line )/, "")}  ${code}` : where;
}

function sentenceOfTimeline({ cycles, clock_ghz: clock, lanes, spans }) {
  return (
    `${withThousands(Math.round(cycles))} cycles, ${(cycles / clock / 1000).toFixed(2)} µs at ${clock} GHz, by the ` +
    `cost model: ${withThousands(spans.length)} spans of ${lanes.length} threads and engines.`
  );
}

/** How much of the time the engines of the first lanes are at work. */
function busyOf({ lanes, spans, cycles }) {
  return lanes.slice(0, MOST_LANES).flatMap((name, lane) => {
    const own = spans.filter(([of, kind]) => of === lane && KINDS5[kind] === "in flight");
    if (!own.length) return [];
    let [busy, until] = [0, 0];
    for (const [, , start, end] of own) {
      busy += Math.max(0, end - Math.max(start, until));
      until = Math.max(until, end);
    }
    return [[name, `at work ${Math.round((100 * busy) / cycles)}% of the time`]];
  });
}

function describeSpan({ data }, i) {
  const [lane, kind, start, end, name, line] = data.spans[i];
  const time = ((end - start) / data.clock_ghz / 1000).toFixed(3);
  const what = name ? `${name}: ${MEANINGS5[kind]}` : MEANINGS5[kind];
  const [where, code] = line >= 0 ? data.lines[line] : ["", ""];
  const whose = line < 0 ? "" : code ? ` ${where}: ${code}` : ` ${where}.`;
  return `${data.lanes[lane]}, ${what}, from ${Math.round(start)} to ${Math.round(end)} (${Math.round(end - start)} cycles, ${time} µs).${whose}`;
}

/** The cells of every span of a line, in both panels. */
function cellsOfLine(s, line) {
  return s.grids.map(({ span }) =>
    Array.from(span.keys()).filter((cell) => span[cell] >= 0 && s.data.spans[span[cell]][5] === line));
}

function pointTimeline(s, state, panel, cell) {
  const i = panel < 0 ? -1 : s.grids[panel].span[cell];
  if (i >= 0) {
    const line = s.data.spans[i][5];
    const marks = line >= 0 ? cellsOfLine(s, line)
      : s.grids.map(({ span }) => Array.from(span.keys()).filter((c) => span[c] === i));
    return { marks, faint: [true, true], text: describeSpan(s, i) };
  }
  if (state.line >= 0 && state.line < s.data.lines.length) {
    const [where, code] = s.data.lines[state.line];
    return { marks: cellsOfLine(s, state.line), faint: [true, true], text: `${where}: ${code}` };
  }
  const text = panel < 0 ? "Point at a span, or at a line of your code: all that the line does lights up. A click keeps it."
    : `${Math.round(s.from + (cell % BINS) * s.width)} cycles: nothing here.`;
  return { marks: [[], []], text };
}

export const timelineSpec = {
  name: "timeline",
  label: "The timeline of your kernel",
  state: { timeline: null, first: 0, last: 0, lanes: "", line: -1 },
  fields: [
    ["lanes", "Threads and engines with, in their name", "text"],
    ["first", "From cycle", "number"],
    ["last", "To cycle (0: the end)", "number"],
  ],
  stacked: true,
  study: studyTimeline,
  point: pointTimeline,
  pick(s, state, panel, cell) {
    const i = s.grids[panel].span[cell];
    const line = i >= 0 ? s.data.spans[i][5] : -1;
    return { line: line === state.line ? -1 : line };
  },
};

export default { render: (given) => renderView(timelineSpec, given) };
