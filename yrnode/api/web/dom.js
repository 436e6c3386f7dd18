/* Elements are only ever made here, and what they say is only ever text. */
const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "circle", "polyline", "line", "title"]);

function h(tag, attributes, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(3)) {
    if (child !== null && child !== undefined && child !== "" && child !== false) node.append(child);
  }
  return node;
}

/* Makes `old` like `fresh` and keeps what is alike: focus, a selection and opened details stay where they are. */
function morph(old, fresh) {
  for (const {name} of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const {name, value} of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const keyed = new Map([...old.children].filter((c) => c.dataset?.key).map((c) => [c.dataset.key, c]));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const same = next.dataset?.key ? keyed.get(next.dataset.key) : at;
    keyed.delete(next.dataset?.key);
    if (same && same.nodeName === next.nodeName && (same.dataset?.key ?? "") === (next.dataset?.key ?? "")) {
      if (same !== at) old.insertBefore(same, at);
      else at = at.nextSibling;
      if (same.nodeType !== 1) {
        if (same.data !== next.data) same.data = next.data;
      } else morph(same, next);
    } else old.insertBefore(next, at);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

/* A shape for each kind, so that colour is never alone: disc, triangle, cross, half ring, ring. */
const KIND = {
  ready: "good", ok: "good", go: "good", in: "good", up: "good", recover: "good", available: "good",
  unhealthy: "warn", late: "warn", leaving: "warn", differs: "warn", lost: "warn", bump: "warn",
  failed: "bad", fail: "bad", fenced: "bad", absent: "bad", "give-up": "bad", unavailable: "bad", "not ready": "bad", "not-ready": "warn", "check-failed": "warn", "check-passed": "good",
  stopped: "idle", out: "idle", skip: "idle", unknown: "idle", rest: "idle",
};
const kind = (word) => KIND[word] ?? "wait";

function shape(of) {
  const inside = {
    good: h("circle", {cx: 8, cy: 8, r: 7, stroke: "none"}),
    warn: h("path", {d: "M8 1 15.5 15H.5Z", stroke: "none"}),
    bad: h("path", {d: "M2 2 14 14M14 2 2 14", "stroke-width": 4}),
    wait: [h("circle", {cx: 8, cy: 8, r: 6, fill: "none", "stroke-width": 2}), h("path", {d: "M8 2A6 6 0 0 1 8 14Z", stroke: "none"})],
    idle: h("circle", {cx: 8, cy: 8, r: 6, fill: "none", "stroke-width": 2}),
  }[of];
  return h("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"}, inside);
}

function state(word, text, of) {
  return h("span", {class: "state " + (of ?? kind(word))}, shape(of ?? kind(word)), h("span", {}, text ?? t(word)));
}
