// What the layout views share: two linked panels of cells on canvases, fields, theme, keyboard,
// copying and saving. A view is a `spec` (see `renderView`); its state is plain data on a model
// with get, set, on, off and save_changes, which anywidget or the static page provides.

/** Okabe and Ito's eight colours: told apart by colour-blind eyes. */
export const EIGHT = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7a7a7a"];

/** `count` colours from dark blue to yellow (cividis), which order by lightness too. */
export function ramp(count) {
  const stops = [[0, 32, 76], [63, 80, 109], [124, 123, 120], [188, 175, 111], [255, 233, 69]];
  return Array.from({ length: count }, (_, i) => {
    const at = count === 1 ? 0 : (i / (count - 1)) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    const mixed = stops[low].map((v, k) => Math.round(v + (stops[low + 1][k] - v) * (at - low)));
    return `#${mixed.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
  });
}

export function withThousands(number) {
  return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// ---- theme ----

function darkNow() {
  const lab = document.body.dataset.jpThemeLight;
  if (lab) return lab === "false";
  if (/vscode-(dark|high-contrast)/.test(document.body.className)) return true;
  if (/vscode-light/.test(document.body.className)) return false;
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function themeOf(root) {
  const dark = darkNow();
  root.classList.toggle("mgx-dark", dark);
  const style = getComputedStyle(root);
  const read = (name) => style.getPropertyValue(`--mgx-${name}`).trim();
  return Object.fromEntries(
    ["ink", "muted", "back", "line", "empty", "mark"].map((name) => [name, read(name)]),
  );
}

function rgb(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

/** Black or white, whichever stands out more (WCAG's relative luminance). */
/** A colour as a pixel of an image, on a little-endian machine. */
function pixelOf(colour) {
  const [r, g, b] = rgb(colour);
  return (255 << 24) | (b << 16) | (g << 8) | r;
}

function inkOn(colour) {
  const [r, g, b] = rgb(colour).map((v) => ((v / 255 + 0.055) / 1.055) ** 2.4);
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (light + 0.05) / 0.057 > 1.05 / (light + 0.05) ? "#101418" : "#ffffff";
}

/** The text, or its beginning and "…", in so much room. */
function fitting(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  let length = text.length;
  while (length > 1 && ctx.measureText(`${text.slice(0, length)}…`).width > room) length--;
  return `${text.slice(0, length)}…`;
}

// ---- a panel of cells ----

const HEAD = 34; // room for the numbers along the top
const SIDE = 46; // and at the left
const MOVE_MS = 3600;
const PLAY_STEP_MS = 350;
const MANY = 256; // cells that stand out enough when all others are faint
const MAX_HEIGHT = 430;
const MAX_HEIGHT_FEW_ROWS = 620; // of up to 64 rows, whose numbers can then be read

class Panel {
  constructor(view, place) {
    this.view = view;
    this.place = place;
    this.title = make("h4", {});
    this.canvas = make("canvas", { tabindex: "0", role: "application" });
    this.node = make("figure", { class: "mgx-panel" }, this.title, this.canvas);
  }

  show(data) {
    this.data = data;
    this.title.textContent = data.title;
    this.canvas.setAttribute("aria-label", `${data.title}. Arrow keys move, Enter picks, Escape leaves.`);
    this.base = null;
    this.paint();
  }

  measure() {
    const { rows, cols } = this.data;
    const width = this.node.clientWidth || 480;
    // room for the names of the rows: what they want, but the cells keep more than half
    this.side = Math.max(SIDE, Math.min(this.data.side ?? SIDE, Math.floor(0.42 * width)));
    const cell = Math.min(this.data.widest ?? 34, (width - this.side - 2) / cols);
    const most = (rows <= 64 ? MAX_HEIGHT_FEW_ROWS : MAX_HEIGHT) / rows;
    const height = Math.min(most, Math.max(Math.min(cell, this.data.tallest ?? 24), this.data.shortest ?? 12));
    this.cell = [cell, height];
    this.size = [width, Math.ceil(HEAD + height * rows + 2)];
  }

  /** The cells without highlights, painted once for each state. */
  paintBase() {
    const { rows, cols, value, palette } = this.data;
    const { theme } = this.view;
    const image = new ImageData(cols, rows);
    const pixels = new Uint32Array(image.data.buffer); // one of four bytes for each cell
    const colours = Uint32Array.from([theme.empty, ...palette], pixelOf);
    for (let i = 0; i < value.length; i++) pixels[i] = colours[value[i] < 0 ? 0 : value[i] + 1];
    const small = new OffscreenCanvas(cols, rows);
    small.getContext("2d").putImageData(image, 0, 0);
    this.small = small;
    const dpr = window.devicePixelRatio || 1;
    const base = new OffscreenCanvas(Math.round(this.size[0] * dpr), Math.round(this.size[1] * dpr));
    const ctx = base.getContext("2d");
    ctx.scale(dpr, dpr);
    ctx.fillStyle = theme.back;
    ctx.fillRect(0, 0, ...this.size);
    ctx.imageSmoothingEnabled = false;
    const [w, h] = this.cell;
    ctx.drawImage(small, this.side, HEAD, w * cols, h * rows);
    this.paintLines(ctx);
    this.paintLabels(ctx);
    this.paintHeads(ctx);
    this.base = base;
  }

  paintLines(ctx) {
    const { rows, cols, blocks } = this.data;
    const [w, h] = this.cell;
    const lines = (stepRows, stepCols, colour, width) => {
      ctx.fillStyle = colour;
      for (let c = 0; c <= cols; c += stepCols) ctx.fillRect(this.side + c * w - width / 2, HEAD, width, h * rows);
      for (let r = 0; r <= rows; r += stepRows) ctx.fillRect(this.side, HEAD + r * h - width / 2, w * cols, width);
    };
    if (w > 5 && h > 5 && !this.data.plain) lines(1, 1, this.view.theme.back, 1);
    if (blocks && blocks[0] * h > 5 && blocks[1] * w > 5) lines(...blocks, this.view.theme.back, w > 5 && h > 5 ? 3 : 1);
  }

  paintLabels(ctx) {
    const { rows, cols, value, palette, label } = this.data;
    const [w, h] = this.cell;
    if (!label || w < 13 || h < 9) return;
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    for (let i = 0; i < rows * cols; i++) {
      const text = label(i);
      const size = Math.min(11, h - 3, (w - 2) / (0.62 * text.length));
      if (!text || size < 6.5) continue;
      ctx.font = `${size}px system-ui, sans-serif`;
      ctx.fillStyle = value[i] < 0 ? this.view.theme.muted : inkOn(palette[value[i]]);
      ctx.fillText(text, this.side + ((i % cols) + 0.5) * w, HEAD + (Math.floor(i / cols) + 0.5) * h);
    }
  }

  paintHeads(ctx) {
    const { rows, cols, rowName, colName, rowTitle, colTitle } = this.data;
    const [w, h] = this.cell;
    ctx.font = "11px system-ui, sans-serif";
    ctx.fillStyle = this.view.theme.muted;
    ctx.textBaseline = "alphabetic";
    ctx.textAlign = "left";
    ctx.fillText(colTitle, this.side, 11);
    ctx.fillText(rowTitle, 0, HEAD - 6);
    ctx.textAlign = "center";
    const every = (size, room, count) => {
      let step = 1;
      while (step * size < room && step < count) step *= 2;
      return step;
    };
    const stepCols = Math.max(every(w, 30, cols), this.data.colStep ?? 1);
    if (this.data.ticks) this.paintTicks(ctx, this.data.ticks);
    else for (let c = 0; c < cols; c += stepCols) ctx.fillText(colName(c), this.side + (c + 0.5) * w, HEAD - 6);
    ctx.textAlign = "right";
    ctx.textBaseline = "middle";
    const stepRows = every(h, 14, rows);
    for (let r = 0; r < rows; r += stepRows) ctx.fillText(fitting(ctx, rowName(r), this.side - 6), this.side - 5, HEAD + (r + 0.5) * h);
  }

  /** Numbers between the columns, as [column, text], as many as there is room for. */
  paintTicks(ctx, ticks) {
    let end = -Infinity;
    for (const [at, text] of ticks) {
      const x = this.side + at * this.cell[0];
      const half = ctx.measureText(text).width / 2;
      if (x - half < end + 8 || x + half > this.size[0]) continue;
      ctx.fillText(text, x, HEAD - 6);
      end = x + half;
    }
  }

  /** Base and highlights: `marks` is {cells, faint}: outlined cells, and whether to dim the rest. */
  paint(marks = this.marks ?? { cells: [] }) {
    const before = this.marks;
    this.marks = marks;
    if (!this.data) return;
    const whole = !this.base || marks.faint || before?.faint || this.data.moving || this.moved;
    if (!this.base) this.makeBase();
    this.moved = Boolean(this.data.moving);
    const dpr = window.devicePixelRatio || 1;
    const ctx = this.canvas.getContext("2d");
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    if (whole) ctx.drawImage(this.base, 0, 0);
    else for (const i of before.cells) this.restore(ctx, i, dpr);
    ctx.scale(dpr, dpr);
    if (this.data.moving) this.paintMoving(ctx);
    if (marks.faint) this.paintFaint(ctx, marks.cells);
    this.outline(ctx, marks.cells);
  }

  makeBase() {
    this.measure();
    this.paintBase();
    const dpr = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.size[0] * dpr);
    this.canvas.height = Math.round(this.size[1] * dpr);
    this.canvas.style.height = `${this.size[1]}px`;
  }

  /** Puts back what an outline of cell `i` was painted over. */
  restore(ctx, i, dpr) {
    const { cols } = this.data;
    const [w, h] = this.cell;
    const room = 8; // of the outline around the cell
    const x = Math.max(0, Math.floor((this.side + (i % cols) * w - room) * dpr));
    const y = Math.max(0, Math.floor((HEAD + Math.floor(i / cols) * h - room) * dpr));
    const wide = Math.min(this.base.width - x, Math.ceil((w + 2 * room) * dpr));
    const tall = Math.min(this.base.height - y, Math.ceil((h + 2 * room) * dpr));
    if (wide > 0 && tall > 0) ctx.drawImage(this.base, x, y, wide, tall, x, y, wide, tall);
  }

  paintFaint(ctx, cells) {
    const { cols, rows } = this.data;
    const [w, h] = this.cell;
    ctx.save();
    ctx.globalAlpha = 0.82;
    ctx.fillStyle = this.view.theme.back;
    ctx.beginPath();
    ctx.rect(this.side, HEAD, w * cols, h * rows);
    for (const i of cells) ctx.rect(this.side + (i % cols) * w, HEAD + Math.floor(i / cols) * h, w, h);
    ctx.fill("evenodd");
    ctx.restore();
  }

  outline(ctx, cells) {
    const { cols } = this.data;
    const [w, h] = this.cell;
    const draw = (colour, width) => {
      ctx.strokeStyle = colour;
      ctx.lineWidth = width;
      ctx.beginPath();
      for (const i of cells) {
        const grow = Math.max(0, 4 - Math.min(w, h)) / 2; // so that a small cell can be seen
        ctx.rect(this.side + (i % cols) * w - grow, HEAD + Math.floor(i / cols) * h - grow, w + 2 * grow, h + 2 * grow);
      }
      ctx.stroke();
    };
    if (!cells.length || (this.marks.faint && cells.length > MANY)) return;
    draw(this.view.theme.back, Math.min(w, h) > 12 ? 4 : 3);
    draw(this.view.theme.mark, Math.min(w, h) > 12 ? 2 : 1.5);
  }

  /** Groups of cells on their way from one place in their row to another; `t` runs from 0 to 1. */
  paintMoving(ctx) {
    const { rows, cols, moving } = this.data;
    const [w, h] = this.cell;
    ctx.fillStyle = this.view.theme.back;
    ctx.fillRect(this.side, HEAD, w * cols, h * rows);
    ctx.imageSmoothingEnabled = false;
    const wide = cols / 8;
    for (let r = 0; r < rows; r++) {
      for (let chunk = 0; chunk < 8; chunk++) {
        const from = chunk ^ moving.phase(r, chunk);
        const x = (from + (chunk - from) * moving.t) * wide * w;
        ctx.drawImage(this.small, chunk * wide, r, wide, 1, this.side + x, HEAD + r * h, wide * w - 1, h);
      }
    }
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const c = Math.floor((event.clientX - box.left - this.side) / this.cell[0]);
    const r = Math.floor((event.clientY - box.top - HEAD) / this.cell[1]);
    const { rows, cols } = this.data;
    return r >= 0 && r < rows && c >= 0 && c < cols ? r * cols + c : -1;
  }
}

// ---- a view ----

/**
 * A spec has: `name`, `label`, `state` (its keys with their defaults), `fields` ([key, label,
 * options or "number", "text" or "check"]), and
 * `study(state)`: {panels: [two], legend, sentence, table, code}; throws an Error in words;
 * `point(study, state, panel, cell)`: {marks: [cells, cells], faint, text, bits};
 * `frame(study, state, t)`: the same while the right panel's cells move, `t` from 0 to 1;
 * `pick(study, state, panel, cell)`: what a click changes in the state, or null;
 * `stacked`: whether the panels lie one above the other;
 * `step`: the key that Page Up and Page Down and the buttons step through, with `steps(study)`;
 * `play`: what its play button is for, if it has one: steps in time, from the first to the last.
 */
export function renderView(spec, { model, el }) {
  const view = new LayoutView(spec, model, el);
  return () => view.close();
}

let views = 0;

class LayoutView {
  constructor(spec, model, el) {
    this.spec = spec;
    this.model = model;
    this.listeners = [];
    this.cursor = null;
    this.build(el);
    this.theme = themeOf(this.root);
    this.connect();
    this.refresh();
  }

  state() {
    return Object.fromEntries(Object.keys(this.spec.state).map((key) => [key, this.model.get(key)]));
  }

  // -- the page --

  build(el) {
    const id = `mgx-${++views}`;
    this.fields = Object.fromEntries(this.spec.fields.map((field) => [field[0], this.field(...field)]));
    this.error = make("p", { class: "mgx-error", role: "alert" });
    this.sentence = make("p", { class: "mgx-sentence", "aria-live": "polite" });
    this.panels = [new Panel(this, 0), new Panel(this, 1)];
    this.inspector = make("p", { class: "mgx-inspector", role: "status", id });
    this.bits = make("table", { class: "mgx-bits" });
    this.table = make("table", { class: "mgx-table" });
    this.legend = make("ul", { class: "mgx-legend" });
    this.code = make("pre", { class: "mgx-code" });
    this.said = make("span", { class: "mgx-said", role: "status" });
    this.buttons = this.makeButtons();
    for (const panel of this.panels) panel.canvas.setAttribute("aria-describedby", id);
    this.stale = make("div", { class: "mgx-main" }, this.sentence,
      make("div", { class: this.spec.stacked ? "mgx-panels mgx-stacked" : "mgx-panels" }, ...this.panels.map((p) => p.node)),
      this.legend, this.inspector, this.bits, this.table,
      make("details", {}, make("summary", {}, "The same as plgpu code"), this.code));
    this.root = make("section", { class: "mgx", "aria-label": this.spec.label, "data-lm-suppress-shortcuts": "true" },
      make("fieldset", {}, make("legend", {}, this.spec.label), ...Object.values(this.fields)),
      this.error,
      make("div", { class: "mgx-tools" }, ...Object.values(this.buttons), this.said), this.stale);
    el.append(this.root);
  }

  makeButtons() {
    const button = (text, title) => make("button", { type: "button", title }, text);
    const made = {};
    if (this.spec.step) {
      made.back = button("◀ step", "One step back (Page Up)");
      made.next = button("step ▶", "One step on (Page Down)");
    }
    if (this.spec.play) made.play = button("▶ play", this.spec.play);
    if (this.spec.animate) made.animate = button("▶ animate", this.spec.animate);
    made.copy = button("Copy plgpu code", "Copies code that builds this");
    if (this.model.link) made.link = button("Copy link", "Copies a link that restores this view");
    made.png = button("Save PNG", "Saves both panels as a picture");
    return made;
  }

  field(key, label, kind) {
    let input;
    if (Array.isArray(kind)) {
      const options = kind.map(([value, text]) => make("option", { value: String(value) }, text));
      input = make("select", { name: key }, ...options);
    } else if (kind === "check") {
      input = make("input", { name: key, type: "checkbox" });
      return make("label", { class: "mgx-check" }, input, make("span", {}, label));
    } else if (kind === "text") {
      input = make("input", { name: key, type: "text", spellcheck: "false" });
    } else {
      input = make("input", { name: key, type: "number", step: "1" });
    }
    return make("label", {}, make("span", {}, label), input);
  }

  showFields(state) {
    for (const [key, label] of Object.entries(this.fields)) {
      const input = label.querySelector("input, select");
      if (input.type === "checkbox") input.checked = state[key];
      else if (document.activeElement !== input || input.tagName === "SELECT") input.value = String(state[key]);
    }
  }

  read(input) {
    if (input.type === "checkbox") return input.checked;
    const before = this.spec.state[input.name];
    return typeof before === "number" ? Number(input.value) : input.value;
  }

  // -- state --

  change(changes) {
    for (const [key, value] of Object.entries(changes)) this.model.set(key, value);
    this.model.save_changes();
    this.refresh();
  }

  refresh() {
    const state = this.state();
    const key = JSON.stringify(state);
    if (key === this.shown) return;
    this.shown = key;
    this.showFields(state);
    try {
      for (const [name, label, kind] of this.spec.fields) {
        if (kind === "number" && !Number.isInteger(state[name])) {
          throw new Error(`${label}: it must be a whole number.`);
        }
      }
      this.study = this.spec.study(state);
      this.complain("");
    } catch (error) {
      this.complain(error.message);
      return;
    }
    this.draw();
  }

  complain(sentence) {
    this.error.textContent = sentence;
    this.stale.classList.toggle("mgx-stale", Boolean(sentence));
    this.stale.hidden = !this.study; // nothing has been drawn yet
  }

  draw() {
    const { study } = this;
    this.sentence.textContent = study.sentence;
    study.panels.forEach((data, i) => this.panels[i].show(data));
    this.legend.replaceChildren(...study.legend.map(([colour, text]) =>
      make("li", {}, make("span", { class: "mgx-swatch", style: `background: ${colour}` }), text)));
    this.table.replaceChildren(...study.table.map(([name, value]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(value)))));
    this.code.textContent = study.code;
    this.code.parentElement.hidden = this.buttons.copy.hidden = !study.code;
    this.pointAt(this.cursor && this.cursor.cell < this.cells(this.cursor.panel) ? this.cursor : null);
  }

  cells(panel) {
    return this.study.panels[panel].rows * this.study.panels[panel].cols;
  }

  /** Highlights what belongs to a cell in both panels; no cell shows what is picked. */
  pointAt(cursor) {
    this.cursor = cursor;
    const found = this.spec.point(this.study, this.state(), cursor?.panel ?? -1, cursor?.cell ?? -1);
    this.panels.forEach((panel, i) => panel.paint({ cells: found.marks[i], faint: found.faint?.[i] }));
    this.inspector.textContent = found.text;
    this.showBits(found.bits);
  }

  /** The table of address bits; only what changes is touched, since this follows the mouse. */
  showBits(rows = []) {
    if (rows.length !== this.bits.rows.length) {
      this.bits.replaceChildren(...rows.map(([name, bits]) =>
        make("tr", {}, make("th", { scope: "row" }, name), ...bits.map(() => make("td", {}, "0")))));
    }
    rows.forEach(([, bits, marked], k) => bits.forEach((bit, i) => {
      const cell = this.bits.rows[k].cells[i + 1];
      const mark = !marked.includes(i) ? "" : k === rows.length - 1 ? "mgx-new" : "mgx-on";
      if (cell.firstChild.data !== String(bit)) cell.firstChild.data = String(bit);
      if (cell.className !== mark) cell.className = mark;
    }));
  }

  pick(panel, cell) {
    const changes = cell < 0 ? null : this.spec.pick(this.study, this.state(), panel, cell);
    if (changes) this.change(changes);
  }

  step(by) {
    const { step } = this.spec;
    const count = this.spec.steps(this.study);
    const now = Math.min(this.state()[step], count - 1); // fields may have made it shorter
    this.change({ [step]: (((now + by) % count) + count) % count });
  }

  /** Plays the steps, or stops; at the end it begins anew. */
  togglePlay() {
    if (this.playing) {
      this.stopPlaying();
      return;
    }
    if (!this.study) return;
    const { step, steps } = this.spec;
    const last = () => steps(this.study) - 1;
    if (this.state()[step] >= last()) this.change({ [step]: 0 });
    this.buttons.play.textContent = "⏸ stop";
    this.playing = setInterval(() => {
      if (this.state()[step] < last() && this.root.isConnected) this.step(1);
      else this.stopPlaying();
    }, PLAY_STEP_MS);
  }

  stopPlaying() {
    clearInterval(this.playing);
    this.playing = null;
    if (this.buttons.play) this.buttons.play.textContent = "▶ play";
  }

  // -- tools --

  async copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", {}, text); // a page from a file has no clipboard of its own
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    this.say(`${what} copied.`);
  }

  say(text) {
    this.said.textContent = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => (this.said.textContent = ""), 2500);
  }

  /** Both panels side by side, with the sentence above. */
  picture() {
    const [a, b] = this.panels.map((panel) => panel.canvas);
    const canvas = make("canvas", {});
    const dpr = window.devicePixelRatio || 1;
    const top = Math.round(30 * dpr);
    canvas.width = a.width + b.width + top;
    canvas.height = Math.max(a.height, b.height) + top;
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = this.theme.back;
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.drawImage(a, 0, top);
    ctx.drawImage(b, a.width + top, top);
    ctx.fillStyle = this.theme.ink;
    ctx.font = `${13 * dpr}px system-ui, sans-serif`;
    ctx.fillText(this.sentence.textContent, 6, 19 * dpr, canvas.width - 12);
    return canvas;
  }

  savePng() {
    const link = make("a", { download: `${this.spec.name}.png`, href: this.picture().toDataURL("image/png") });
    link.click();
    this.say("Picture saved.");
  }

  animate() {
    const [, panel] = this.panels;
    const { moves } = panel.data;
    if (!moves) {
      this.say("Nothing moves: there is no swizzle.");
      return;
    }
    const from = performance.now();
    const wanted = window.matchMedia("(prefers-reduced-motion: reduce)").matches ? 1 : MOVE_MS;
    const frame = (now) => {
      const t = Math.min(1, Math.max(0, (now - from) / wanted));
      if (this.spec.frame) this.showFrame(t);
      panel.data.moving = t < 1 ? { phase: moves, t: t * t * (3 - 2 * t) } : null;
      panel.paint();
      if (t < 1 && this.root.isConnected) this.frame = requestAnimationFrame(frame);
    };
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(frame);
  }

  /** What an animation says and marks at time `t`, 0 to 1; what was shown before comes back. */
  showFrame(t) {
    if (t === 1) {
      this.pointAt(null);
      return;
    }
    const found = this.spec.frame(this.study, this.state(), t);
    this.inspector.textContent = found.text;
    this.showBits(found.bits);
    this.panels.forEach((panel, i) => (panel.marks = { cells: found.marks[i] }));
    this.panels[0].paint({ cells: found.marks[0], faint: true });
  }

  // -- events --

  on(target, event, handler) {
    target.addEventListener(event, handler);
    this.listeners.push(() => target.removeEventListener(event, handler));
  }

  connect() {
    for (const label of Object.values(this.fields)) {
      const input = label.querySelector("input, select");
      this.on(input, "change", () => this.change({ [input.name]: this.read(input) }));
    }
    this.panels.forEach((panel, place) => this.connectPanel(panel, place));
    const { back, next, play, animate, copy, link, png } = this.buttons;
    if (back) {
      this.on(back, "click", () => this.step(-1));
      this.on(next, "click", () => this.step(1));
    }
    if (play) this.on(play, "click", () => this.togglePlay());
    if (animate) this.on(animate, "click", () => this.animate());
    this.on(copy, "click", () => this.copy(this.study.code, "Code"));
    if (link) this.on(link, "click", () => this.copy(this.model.link(), "Link"));
    this.on(png, "click", () => this.savePng());
    this.on(this.root, "keydown", (event) => this.key(event));
    this.on(window.matchMedia("(prefers-color-scheme: dark)"), "change", () => this.retheme());
    const theme = new MutationObserver(() => this.retheme());
    theme.observe(document.body, { attributes: true, attributeFilter: ["class", "data-jp-theme-light"] });
    const size = new ResizeObserver(() => this.resized());
    size.observe(this.root);
    const changed = () => this.refresh();
    for (const key of Object.keys(this.spec.state)) this.model.on(`change:${key}`, changed);
    this.listeners.push(() => {
      theme.disconnect();
      size.disconnect();
      for (const key of Object.keys(this.spec.state)) this.model.off(`change:${key}`, changed);
    });
  }

  connectPanel(panel, place) {
    this.on(panel.canvas, "pointermove", (event) => {
      const cell = this.study ? panel.under(event) : -1;
      if (cell !== this.cursor?.cell || place !== this.cursor?.panel) {
        this.pointAt(cell < 0 ? null : { panel: place, cell });
      }
    });
    this.on(panel.canvas, "pointerleave", () => this.study && this.pointAt(null));
    this.on(panel.canvas, "click", (event) => this.study && this.pick(place, panel.under(event)));
  }

  retheme() {
    this.theme = themeOf(this.root);
    for (const panel of this.panels) {
      panel.base = null;
      panel.paint();
    }
  }

  resized() {
    if (this.root.clientWidth === this.width) return;
    this.width = this.root.clientWidth;
    this.retheme();
  }

  key(event) {
    if (event.target.matches("select, input") || event.altKey || event.ctrlKey || event.metaKey) return;
    const place = this.panels.findIndex((panel) => panel.canvas === event.target);
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (this.spec.step && event.key === "PageUp") this.step(-1);
    else if (this.spec.step && event.key === "PageDown") this.step(1);
    else if (place >= 0 && event.key in moves) this.move(place, moves[event.key]);
    else if (place >= 0 && (event.key === "Enter" || event.key === " ")) this.pick(place, this.cursor?.cell ?? -1);
    else if (place >= 0 && event.key === "Escape") this.pointAt(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(place, [dr, dc]) {
    const { rows, cols } = this.study.panels[place];
    const at = this.cursor?.panel === place ? this.cursor.cell : -1;
    const clamp = (value, size) => Math.max(0, Math.min(size - 1, value));
    const next = at < 0 ? 0 : clamp(Math.floor(at / cols) + dr, rows) * cols + clamp((at % cols) + dc, cols);
    this.pointAt({ panel: place, cell: next });
  }

  close() {
    this.stopPlaying();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.saying);
    for (const undo of this.listeners) undo();
  }
}
