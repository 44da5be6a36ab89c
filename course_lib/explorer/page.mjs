// The static page: one tab for each view, its state in the address. `VIEWS` (name -> {title,
// render, state}) stands in front of this when the page is built.

/** What anywidget gives a view, without a kernel; every change goes into the address. */
class PageModel {
  constructor(name, state) {
    this.name = name;
    this.state = { ...VIEWS[name].state, ...state };
    this.handlers = new Map();
  }

  get(key) {
    return this.state[key];
  }

  set(key, value) {
    if (Object.is(this.state[key], value)) return;
    this.state[key] = value;
    for (const handler of this.handlers.get(`change:${key}`) ?? []) handler();
  }

  on(event, handler) {
    if (!this.handlers.has(event)) this.handlers.set(event, new Set());
    this.handlers.get(event).add(handler);
  }

  off(event, handler) {
    this.handlers.get(event)?.delete(handler);
  }

  save_changes() {
    history.replaceState(null, "", `#${hashOf(this.name, this.state)}`);
  }

  link() {
    return `${location.href.split("#")[0]}#${hashOf(this.name, this.state)}`;
  }
}

/** `smem?rows=128`: the view, and what differs from its defaults. */
function hashOf(name, state) {
  const changed = Object.entries(VIEWS[name].state).filter(([key, value]) => state[key] !== value);
  const query = new URLSearchParams(changed.map(([key]) => [key, String(state[key])]));
  return changed.length ? `${name}?${query}` : name;
}

/** The inverse; what is not understood is left at its default. */
function stateOf(hash) {
  const [name, query = ""] = hash.replace(/^#/, "").split("?");
  const known = Object.hasOwn(VIEWS, name) ? name : Object.keys(VIEWS)[0];
  const state = {};
  for (const [key, text] of new URLSearchParams(query)) {
    const value = VIEWS[known].state[key];
    if (typeof value === "number" && Number.isFinite(Number(text))) state[key] = Number(text);
    else if (typeof value === "boolean") state[key] = text === "true";
    else if (typeof value === "string") state[key] = text;
  }
  return [known, state];
}

const place = document.querySelector("main");
const tabs = document.querySelector("nav");
let close = () => {};

function open() {
  const [name, state] = stateOf(location.hash);
  close();
  place.replaceChildren();
  const model = new PageModel(name, state);
  window.model = model; // for tests, and for the curious at the console
  close = VIEWS[name].render({ model, el: place });
  for (const link of tabs.querySelectorAll("a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[name].title}: layout explorer`;
}

for (const [name, { title }] of Object.entries(VIEWS)) {
  const link = document.createElement("a");
  link.href = `#${name}`;
  link.textContent = title;
  tabs.append(link);
}
window.addEventListener("hashchange", open);
open();
