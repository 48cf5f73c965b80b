"use strict";
const trace = JSON.parse(document.getElementById("trace").textContent);
const element = (id) => document.getElementById(id);
const nodes = trace.lanes.length - 1;

const STATES = {
  LEADER: "#2f9e58", CANDIDATE: "#f0a31c", FOLLOWER: "#a9bdd3", LEARNER: "#b59fd8",
  NON_PARTICIPANT: "#e6e9ed", PAUSED: "#d8c37a", DOWN: "#3c4148",
};
const TYPES = { VOTER: "#1f5fa8", PRE_VOTER: "#58b4d1", NON_VOTER: "#c3cbd4", WITNESS: "#7d6bc4", PRE_WITNESS: "#c7a3e0" };
const KINDS = {
  violation: "#c4161c", fault: "#d9622b", role: "#1d232b", vote: "#8a3fc0", append: "#1f5fa8", refusal: "#c4161c",
  probe: "#7f9cba", reply: "#8fb4da", message: "#0f8a8a", heartbeat: "#c3cbd4", term: "#7a5a2f", truncate: "#b0235f",
  persist: "#6f7f3f", commit: "#2f9e58", config: "#0d6f9c", apply: "#93c7a5", client: "#a08770",
};
const AXIS = 92, LINE_PX = 14, PAUSE_PX = 56, HEAD_PX = 22, DRAWN_MAX = 3000;

const view = {
  kinds: new Set(trace.shown), lanes: new Set(trace.lanes.keys()), stretch: true,
  pixels: { true: 1500, false: 1500 }, // pixels of a second, for the two scales
  marks: [], times: [], ys: [], height: 0, kept: null, drawn: [],
};

const second = (us) => (us / 1e6).toFixed(6);

function svg(parent, name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

function html(parent, name, attributes, text) {
  const made = Object.assign(document.createElement(name), attributes);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
}

// -- What passes the filter, and where it is drawn ----------------------------------------------

function passes(record) {
  if (!view.kinds.has(record.kind)) return false;
  const ends = [record.lane, record.to_lane].filter((lane) => lane !== undefined && lane !== null);
  if (ends.includes(nodes) && !view.lanes.has(nodes)) return false;
  return ends.length === 0 || ends.some((lane) => view.lanes.has(lane));
}

const ofFault = (span) => ({ kind: "fault", at_us: span.from_us, lane: span.node, text: span.text, until_us: span.to_us });

/* Every record is a mark, with a moment for its start and one for each end. In order of time, each moment gets its place:
   on the plain scale by its time alone, otherwise below the one before it, with room for the labels of its lane. */
function lay() {
  const records = trace.records.filter(passes);
  if (view.kinds.has("fault")) records.push(...trace.faults.map(ofFault).filter(passes));
  view.marks = records.map((record) => ({ record, y: 0, ends: [], top: 0, bottom: 0 }));
  const moments = [];
  for (const mark of view.marks) {
    moments.push({ at: mark.record.at_us, mark, label: true, lane: mark.record.lane ?? -1 });
    const ends = [["arrived", mark.record.arrived_us], ["lost", mark.record.lost_us], ["until", mark.record.until_us]];
    for (const [what, times] of ends)
      for (const at of [times ?? []].flat()) moments.push({ at, mark, what, lane: mark.record.to_lane ?? -1 });
  }
  moments.sort((one, other) => one.at - other.at);
  place(moments);
  for (const mark of view.marks) {
    const ys = [mark.y, ...mark.ends.map((end) => end.y)];
    [mark.top, mark.bottom] = [Math.min(...ys), Math.max(...ys)];
  }
  view.marks.sort((one, other) => one.y - other.y);
  element("height").style.height = `${view.height + HEAD_PX}px`;
  count();
}

function place(moments) {
  const perUs = view.pixels[view.stretch] / 1e6, last = new Map();
  let y = HEAD_PX + LINE_PX, before = trace.from_us;
  [view.times, view.ys] = [[trace.from_us], [y]];
  for (const moment of moments) {
    const at = Math.min(Math.max(moment.at, trace.from_us), trace.to_us), gap = (at - before) * perUs;
    y += view.stretch ? Math.min(gap, PAUSE_PX) : gap;
    if (moment.label && view.stretch) {
      y = Math.max(y, (last.get(moment.lane) ?? 0) + LINE_PX, (last.get(-1) ?? 0) + LINE_PX);
      if (moment.lane === -1) y = Math.max(y, Math.max(0, ...last.values()) + LINE_PX);
    }
    if (moment.label) {
      moment.mark.shown = moment.lane < 0 || y - (last.get(moment.lane) ?? 0) >= LINE_PX - 1;
      if (moment.mark.shown) last.set(moment.lane, y);
      moment.mark.y = y;
    } else moment.mark.ends.push({ what: moment.what, at: moment.at, y });
    view.times.push(at);
    view.ys.push(y);
    before = at;
  }
  const rest = (trace.to_us - before) * perUs;
  y += view.stretch ? Math.min(rest, PAUSE_PX) : rest;
  view.times.push(trace.to_us);
  view.ys.push(y + 1);
  view.height = y + 60;
}

function below(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Returns the place of a time, or the time of a place. Of several moments at one time, the first one counts. */
function between(from, to, wanted) {
  const next = below(from, wanted - 1e-9);
  if (next === 0) return to[0];
  if (next === from.length) return to[to.length - 1];
  const share = (wanted - from[next - 1]) / (from[next] - from[next - 1] || 1);
  return to[next - 1] + share * (to[next] - to[next - 1]);
}
const yOf = (us) => between(view.times, view.ys, us);
const yOfEnd = (us) => (us >= trace.to_us ? view.ys[view.ys.length - 1] : yOf(us));
const timeOf = (y) => between(view.ys, view.times, y);

// -- Drawing what is in the window ---------------------------------------------------------------

const canvas = element("canvas"), scroller = element("scroll");
const isShown = (lane) => view.lanes.has(lane) && (lane < nodes || view.kinds.has("client"));
const shownLanes = () => [...trace.lanes.keys()].filter(isShown);
const laneWidth = () => (canvas.clientWidth - AXIS) / Math.max(1, shownLanes().length);

function xOf(lane) {
  const at = shownLanes().indexOf(lane);
  return at < 0 ? null : AXIS + at * laneWidth() + 20;
}

function draw() {
  const top = scroller.scrollTop, height = scroller.clientHeight;
  canvas.setAttribute("height", height);
  canvas.replaceChildren();
  const layer = svg(canvas, "g", { transform: `translate(0 ${-top})` });
  drawSpans(layer, top, top + height);
  const inside = view.marks.filter((mark) => mark.bottom >= top - 20 && mark.top <= top + height + 20);
  view.drawn = inside.slice(0, DRAWN_MAX);
  drawAxis(layer, top, height);
  const labels = document.createElementNS("http://www.w3.org/2000/svg", "g");
  for (const mark of view.drawn) drawMark(layer, labels, mark);
  layer.append(labels);
  drawHeads();
  element("count").textContent = view.counted +
    (inside.length > DRAWN_MAX ? ` Only ${DRAWN_MAX} of ${inside.length} in this window are drawn: press + or clear boxes.` : "");
  drawWindow(timeOf(top + HEAD_PX), timeOf(top + height));
}

function drawHeads() {
  svg(canvas, "rect", { x: 0, y: 0, width: canvas.clientWidth, height: HEAD_PX, fill: "#fff" });
  for (const lane of shownLanes()) svg(canvas, "text", { x: xOf(lane) - 8, y: 15, class: "name" }, trace.lanes[lane]);
  svg(canvas, "text", { x: AXIS - 14, y: 15, class: "axis", "text-anchor": "end" }, "time s");
  svg(canvas, "line", { x1: 0, x2: canvas.clientWidth, y1: HEAD_PX, y2: HEAD_PX, stroke: "#cfd6de" });
}

/* Draws the part of each span that is in the window. Text begins at the top of that part, so that it can always be read. */
function drawSpans(layer, top, bottom) {
  const cut = (span, use) => {
    const from = Math.max(yOf(span.from_us), top), to = Math.min(yOfEnd(span.to_us), bottom);
    if (to > from && span.from_us <= trace.to_us && span.to_us >= trace.from_us) use(from, to);
  };
  if (view.kinds.has("fault")) for (const span of trace.faults) cut(span, (from, to) => {
    const x = span.node === null ? AXIS : xOf(span.node);
    const width = span.node === null ? canvas.clientWidth : laneWidth() - 8;
    if (x !== null) svg(layer, "rect", { x: x - 14, y: from, width, height: to - from, fill: "#f3a35c", opacity: span.node === null ? 0.1 : 0.2 });
  });
  for (const band of trace.members) cut(band, (from, to) => {
    const x = xOf(band.node), fill = TYPES[band.state];
    if (x !== null && fill) svg(layer, "rect", { x: x - 12, y: from, width: 4, height: to - from, fill });
  });
  for (const band of trace.roles) cut(band, (from, to) => {
    const x = xOf(band.node);
    if (x === null) return;
    const down = band.state === "DOWN";
    svg(layer, "rect", { x: x - (down ? 1.5 : 6), y: from, width: down ? 3 : 12, height: to - from, fill: STATES[band.state] ?? "#ccc" });
    if (band.term && to - from > 40) svg(layer, "text", { x: x + 3, y: Math.max(from, top + HEAD_PX) + 3, class: "term", transform: `rotate(90 ${x - 3} ${Math.max(from, top + HEAD_PX) + 3})` }, `${band.term}`);
  });
  const clients = xOf(nodes);
  if (clients !== null) svg(layer, "line", { x1: clients, x2: clients, y1: top, y2: bottom, stroke: "#a08770", "stroke-dasharray": "2 3" });
}

function drawAxis(layer, top, height) {
  const label = (y, us) => {
    svg(layer, "text", { x: AXIS - 26, y: y + 3, class: "axis", "text-anchor": "end" }, second(us));
    svg(layer, "line", { x1: AXIS - 22, x2: canvas.clientWidth, y1: y, y2: y, stroke: "#eef1f4" });
  };
  if (!view.stretch) {
    const steps = [1e3, 5e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6], perUs = view.pixels[false] / 1e6;
    const step = steps.find((us) => us * perUs >= 40) ?? 1e7;
    for (let us = Math.ceil(timeOf(top) / step) * step; us <= timeOf(top + height); us += step) label(yOf(us), us);
    return;
  }
  let last = -Infinity;
  for (const mark of view.drawn) if (mark.y - last >= 26) label(last = mark.y, mark.record.at_us);
  const first = below(view.ys, top);
  for (let at = Math.max(1, first); at < view.ys.length && view.ys[at] < top + height; at++) {
    const gap = view.times[at] - view.times[at - 1], y = (view.ys[at] + view.ys[at - 1]) / 2;
    if ((gap * view.pixels[true]) / 1e6 > PAUSE_PX)
      svg(layer, "text", { x: AXIS - 26, y: y + 3, class: "axis", "text-anchor": "end" }, `⋮ ${(gap / 1e6).toFixed(3)} s`);
  }
}

/* Labels are above all arrows, with a white edge, so that an arrow does not strike them through. */
function drawMark(layer, labels, mark) {
  const record = mark.record, color = KINDS[record.kind], on = mark === view.kept ? " on" : "";
  const x = record.lane === undefined || record.lane === null ? AXIS : xOf(record.lane);
  const group = svg(layer, "g", {});
  group.mark = mark;
  if (record.kind === "violation") {
    svg(group, "rect", { x: 0, y: mark.y - 9, width: canvas.clientWidth, height: 18, fill: "#c4161c" });
    svg(group, "text", { x: AXIS, y: mark.y + 4, style: "fill:#fff;font-weight:600" }, record.text);
    return;
  }
  if (record.to_lane !== undefined) for (const end of mark.ends) drawArrow(group, record, mark.y, end, color, on);
  if (x === null) return;
  svg(group, "circle", { cx: x, cy: mark.y, r: record.to_lane === undefined ? 4 : 2.5, fill: color, class: `dot${on}` });
  if (!mark.shown) return;
  const room = Math.floor(((mark.record.lane === null ? canvas.clientWidth : laneWidth()) - 30) / 6.7), arrow = record.to_lane === undefined ? "" : `→${name(record.to_lane)} `;
  const whole = arrow + record.text, text = whole.length > room ? `${whole.slice(0, room - 1)}…` : whole;
  svg(labels, "text", { x: x + 10, y: mark.y - 1, class: "label", style: `fill:${record.kind === "heartbeat" ? "#8a949e" : color}` }, text);
}

function drawArrow(group, record, from, end, color, on) {
  const x1 = xOf(record.lane), x2 = xOf(record.to_lane);
  if (x1 === null || x2 === null) return;
  const lost = end.what === "lost", share = lost ? 0.6 : 1, x = x1 + (x2 - x1) * share;
  const y = lost ? Math.max(end.y, from + 6) : end.y, line = { x1, y1: from, x2: x, y2: y };
  svg(group, "line", { ...line, stroke: color, "stroke-width": 1.3, class: on, opacity: 0.75, "stroke-dasharray": lost ? "4 3" : "none" });
  svg(group, "line", { ...line, class: "hit" });
  if (lost) svg(group, "path", { d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`, stroke: "#c4161c", "stroke-width": 1.8 });
  else {
    const angle = (Math.atan2(y - from, x - x1) * 180) / Math.PI;
    svg(group, "path", { d: "M0 0l-8 -3.5v7z", fill: color, transform: `translate(${x - Math.sign(x2 - x1) * 5} ${y}) rotate(${angle})` });
  }
}

const name = (lane) => (lane === nodes ? "client" : lane);

// -- The whole run at the left ----------------------------------------------------------------

const overview = element("overview");
let rectangle = null;

function drawOverview() {
  const height = overview.clientHeight, at = (us) => ((us - trace.from_us) / Math.max(1, trace.to_us - trace.from_us)) * height;
  const step = 100 / Math.max(1, nodes);
  overview.replaceChildren();
  const box = (span, attributes) => {
    const from = Math.max(0, at(span.from_us)), to = Math.min(height, at(span.to_us));
    if (to >= from) svg(overview, "rect", { y: from, height: Math.max(1, to - from), ...attributes });
  };
  for (const span of trace.faults)
    box(span, { x: span.node === null ? 44 : 42 + span.node * step, width: span.node === null ? 104 : step, fill: "#f3a35c", opacity: span.node === null ? 0.2 : 0.5 });
  for (const band of trace.roles)
    box(band, { x: 44 + band.node * step, width: band.state === "DOWN" ? 2 : step * 0.6, fill: STATES[band.state] ?? "#ccc" });
  const every = [0.1, 0.5, 1, 2, 5, 10, 20, 60].find((s) => at(trace.from_us + s * 1e6) >= 30) ?? 300;
  for (let s = Math.ceil(trace.from_us / 1e6 / every) * every; s <= trace.to_us / 1e6; s += every)
    svg(overview, "text", { x: 38, y: at(s * 1e6) + 4, class: "axis", "text-anchor": "end" }, `${+s.toFixed(1)} s`);
  if (trace.violation_us !== null) svg(overview, "rect", { x: 0, y: at(trace.violation_us) - 2, width: 150, height: 4, fill: "#c4161c" });
  rectangle = svg(overview, "rect", { x: 1, width: 147, fill: "#1d232b", "fill-opacity": 0.08, stroke: "#1d232b" });
  overview.at = at;
}

function drawWindow(from, to) {
  rectangle.setAttribute("y", overview.at(from));
  rectangle.setAttribute("height", Math.max(3, overview.at(to) - overview.at(from)));
}

// -- What the reader does ------------------------------------------------------------------------

function goTo(us) {
  scroller.scrollTop = yOf(us) - scroller.clientHeight / 3;
  draw();
}

function redo(keep = timeOf(scroller.scrollTop + scroller.clientHeight / 3)) {
  lay();
  goTo(keep);
}

function describe(record) {
  const where = record.to_lane !== undefined ? `${trace.lanes[record.lane]} → ${trace.lanes[record.to_lane]}`
    : record.lane === undefined || record.lane === null ? "whole run" : trace.lanes[record.lane];
  const outcome = [
    ...(record.arrived_us ?? []).map((us) => `arrived ${second(us)} s (after ${((us - record.at_us) / 1e3).toFixed(3)} ms)`),
    ...(record.lost_us ?? []).map((us) => `lost ${second(us)} s`),
  ];
  if (record.until_us !== undefined) outcome.push(`until ${second(record.until_us)} s`);
  if (record.to_lane !== undefined && !outcome.length) outcome.push("still in flight at the end");
  return [`${second(record.at_us)} s`, record.kind, where, record.text, ...outcome].join("  |  ");
}

function tell(mark) {
  const detail = element("detail"), told = mark ?? view.kept;
  detail.classList.toggle("kept", told !== null && told === view.kept);
  if (told) detail.textContent = describe(told.record);
}

function keep(mark) {
  view.kept = mark;
  draw();
  tell(null);
}

function step(by) {
  const at = view.marks.indexOf(view.kept);
  const next = at < 0 ? below(view.marks.map((mark) => mark.y), scroller.scrollTop + HEAD_PX) : at + by;
  const mark = view.marks[Math.min(Math.max(next, 0), view.marks.length - 1)];
  if (!mark) return;
  if (mark.y < scroller.scrollTop + 40 || mark.y > scroller.scrollTop + scroller.clientHeight - 40)
    scroller.scrollTop = mark.y - scroller.clientHeight / 3;
  keep(mark);
}

function count() {
  const hidden = Object.entries(trace.kinds).filter(([kind]) => !view.kinds.has(kind)).map(([kind, number]) => `${number} ${kind}`);
  const records = view.marks.filter((mark) => mark.record.until_us === undefined).length;
  view.counted = `${records} of ${trace.records.length} records pass the filter.` + (hidden.length ? ` Not shown: ${hidden.join(", ")}.` : "");
}

function box(parent, label, color, checked, change) {
  const made = html(parent, "label", {}), input = html(made, "input", { type: "checkbox", checked });
  if (color) html(made, "span", { className: "swatch" }).style.background = color;
  made.append(label);
  input.addEventListener("change", () => { change(input.checked); redo(); });
}

const toggle = (set, value) => (on) => (on ? set.add(value) : set.delete(value));

function begin() {
  for (const [kind, number] of Object.entries(trace.kinds))
    box(element("kinds"), `${kind} ${number}`, KINDS[kind], view.kinds.has(kind), toggle(view.kinds, kind));
  if (!trace.kinds.client) view.lanes.delete(nodes);
  trace.lanes.forEach((lane, number) => {
    if (number < nodes || trace.kinds.client) box(element("nodes"), lane, null, view.lanes.has(number), toggle(view.lanes, number));
  });
  const legend = (names, text) => {
    for (const [key, color] of Object.entries(names)) {
      html(element("legend"), "span", { className: "swatch" }).style.background = color;
      element("legend").append(`${key} `);
    }
    html(element("legend"), "span", {}, text);
  };
  legend(STATES, " number in a band: term ");
  if (trace.members.length) legend(TYPES, " at the left of a band: member type in the committed config");
  element("headline").textContent = trace.violation_us === null ? "no violation" : `VIOLATION at ${second(trace.violation_us)} s`;
  element("headline").className = trace.violation_us === null ? "good" : "bad";
  element("stretch").addEventListener("change", (event) => {
    const at = timeOf(scroller.scrollTop + scroller.clientHeight / 3);
    view.stretch = event.target.checked;
    redo(at);
  });
  for (const [id, factor] of [["in", 1.6], ["out", 1 / 1.6]])
    element(id).addEventListener("click", () => { view.pixels[view.stretch] *= factor; redo(); });
  element("goto").addEventListener("change", (event) => goTo(Number(event.target.value) * 1e6));
  document.body.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-at]");
    if (link) goTo(Number(link.dataset.at));
  });
  const markOf = (event) => event.target.closest?.("g")?.mark ?? null;
  canvas.addEventListener("mousemove", (event) => tell(markOf(event)));
  canvas.addEventListener("click", (event) => keep(markOf(event)));
  overview.addEventListener("click", (event) => {
    const share = (event.clientY - overview.getBoundingClientRect().top) / overview.clientHeight;
    goTo(trace.from_us + share * (trace.to_us - trace.from_us));
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.type !== "number" && (event.key === "j" || event.key === "k")) step(event.key === "j" ? 1 : -1);
  });
  scroller.addEventListener("scroll", () => requestAnimationFrame(draw));
  new ResizeObserver(() => { drawOverview(); draw(); }).observe(element("scroll"));
  drawOverview();
  const asked = location.hash.slice(1);
  lay();
  if (asked === "") draw();
  else goTo(Number(asked));
}
begin();
