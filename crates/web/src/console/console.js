// The console: asks the server once a second, shows the answer. No library, no request to another server.
//
// Texts of the server (names, statements, log lines) are set as text, never as HTML.
"use strict";

const POLL_MS = 1000, HIDDEN_POLL_MS = 10000, POINTS_MAX = 900;
const byId = (id) => document.getElementById(id);
const store = { points: [], events: [], point: 0, event: 0, last: null, token: "", signals: false };

// ---- elements ----

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
function svg(tag, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// ---- numbers with units ----

const isKnown = (n) => n !== null && n !== undefined && Number.isFinite(n);
function digits(n) {
  const a = Math.abs(n);
  if (a === 0) return "0";
  if (a >= 100) return n.toFixed(0);
  return a >= 10 ? n.toFixed(1).replace(/\.0$/, "") : n.toFixed(2).replace(/\.?0+$/, "");
}
function count(n) {
  if (!isKnown(n)) return "–";
  if (Math.abs(n) >= 1e9) return digits(n / 1e9) + " G";
  if (Math.abs(n) >= 1e6) return digits(n / 1e6) + " M";
  if (Math.abs(n) >= 1e4) return digits(n / 1e3) + " k";
  return digits(n);
}
const rate = (n) => (isKnown(n) ? count(n) + "/s" : "–");
function bytes(n) {
  if (!isKnown(n)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (Math.abs(n) >= 1024 && at < units.length - 1) { n /= 1024; at += 1; }
  return digits(n) + " " + units[at];
}
function ms(n) {
  if (!isKnown(n)) return "–";
  if (n === 0) return "0 ms";
  if (n < 1) return digits(n * 1000) + " µs";
  if (n < 1000) return digits(n) + " ms";
  return span(n);
}
function span(n) {
  if (!isKnown(n)) return "–";
  const s = n / 1000;
  if (s < 60) return digits(Math.max(0, s)) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}
const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });
const percent = (n) => (isKnown(n) ? digits(n * 100) + " %" : "–");

// ---- charts ----

const CHARTS = [
  { title: "Throughput", unit: rate, lines: [["requests", "rps"], ["commits", "tps"]] },
  { title: "Request latency", unit: ms, lines: [["p50", "req50"], ["p99", "req99"]] },
  { title: "Commit latency", unit: ms, lines: [["p50", "com50"], ["p99", "com99"]] },
  { title: "Sync time", unit: ms, lines: [["p50", "sync50"], ["p99", "sync99"]] },
  { title: "Commits per boxcar", unit: count, lines: [["mean", "boxcar"]] },
  { title: "Boxcars", unit: rate, lines: [["boxcars", "boxcars"]] },
  { title: "Standbys' lag", unit: bytes, inBytes: true, standbys: 1 },
  { title: "Governor's delay per second", unit: ms, lines: [["delay", "governor_ms"]] },
  { title: "Sessions", unit: count, lines: [["active", "active"], ["waiting", "waiting"]] },
  { title: "Errors", unit: rate, lines: [["errors", "eps"]] },
  { title: "Trail written", unit: (n) => bytes(n) + "/s", inBytes: true, lines: [["written", "trail_bps"]] },
  { title: "CPU of the server", unit: percent, lines: [["of one core", "cpu"]] },
];
const W = 400, H = 118, LEFT = 4, RIGHT = 4, TOP = 8, BOTTOM = 16;

// The top of an axis: a round number in the unit that it is shown in.
function niceMax(n, inBytes) {
  if (!(n > 0)) return 1;
  const unit = inBytes ? Math.pow(1024, Math.floor(Math.log(n) / Math.log(1024))) : 1;
  const power = unit * Math.pow(10, Math.floor(Math.log10(n / unit)));
  return [1, 2, 4, 10].map((step) => step * power).find((max) => max >= n);
}

function makeChart(spec) {
  const caption = element("figcaption", {}, element("b", {}, spec.title));
  const keys = element("span", { class: "keys" });
  caption.append(keys);
  const drawing = svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", tabindex: "0", role: "img" });
  const figure = element("figure", { class: "chart" }, caption);
  figure.append(drawing);
  const chart = { spec, keys, drawing, cursor: null };
  const pick = (event) => {
    const box = drawing.getBoundingClientRect();
    chart.cursor = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    draw(chart);
  };
  drawing.addEventListener("pointermove", pick);
  drawing.addEventListener("pointerleave", () => { chart.cursor = null; draw(chart); });
  drawing.addEventListener("blur", () => { chart.cursor = null; draw(chart); });
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1 / 60, ArrowRight: 1 / 60 }[event.key];
    if (!step) return;
    event.preventDefault();
    chart.cursor = Math.min(1, Math.max(0, (chart.cursor ?? 1) + step));
    draw(chart);
  });
  return [chart, figure];
}

function linesOf(spec) {
  if (!spec.standbys) return spec.lines.map(([name, key]) => ({ name, of: (p) => p[key] }));
  const names = [];
  for (const p of store.points) for (const [name] of p.standbys) if (!names.includes(name)) names.push(name);
  return names.slice(0, 4).map((name) => ({
    name, of: (p) => { const row = p.standbys.find((one) => one[0] === name); return row ? row[1] : null; },
  }));
}

function draw(chart) {
  const { spec, drawing, keys } = chart;
  const lines = linesOf(spec);
  const all = store.points;
  const end = all.length ? all[all.length - 1].t : Date.now();
  const minutes = rangeMinutes();
  const begin = end - minutes * 60000;
  const points = all.filter((p) => p.t >= begin);
  // The drawing has the size that it is shown in, so that text is not stretched.
  const width = Math.max(200, Math.round(drawing.clientWidth || W));
  drawing.setAttribute("viewBox", `0 0 ${width} ${H}`);
  const x = (t) => LEFT + ((t - begin) / (end - begin)) * (width - LEFT - RIGHT);
  let max = 0;
  for (const p of points) for (const line of lines) { const v = line.of(p); if (isKnown(v) && v > max) max = v; }
  max = niceMax(max * 1.05, spec.inBytes);
  const y = (v) => TOP + (1 - v / max) * (H - TOP - BOTTOM);
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    const at = Math.round(y(max * part)) + 0.5;
    parts.push(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: at, y2: at }));
    if (part > 0) parts.push(svg("text", { x: LEFT, y: at + 11 }, spec.unit(max * part)));
  }
  const ago = { 1: ["60 s", "40 s", "20 s"], 5: ["5 min", "3 min 20 s", "1 min 40 s"], 15: ["15 min", "10 min", "5 min"] }[minutes];
  [...ago.map((text) => text + " ago"), "now"].forEach((text, number) => {
    const anchor = ["start", "middle", "middle", "end"][number];
    parts.push(svg("text", { x: x(begin + (number / 3) * (end - begin)), y: H - 4, "text-anchor": anchor }, text));
  });
  lines.forEach((line, number) => {
    let path = "", before = null;
    for (const p of points) {
      const v = line.of(p);
      if (!isKnown(v)) { continue; }
      const gap = before === null || p.t - before > 15000;
      path += `${gap ? "M" : "L"}${x(p.t).toFixed(1)} ${y(v).toFixed(1)}`;
      before = p.t;
    }
    if (path) parts.push(svg("path", { class: `c${number}`, d: path }));
  });
  let shown = points[points.length - 1];
  if (chart.cursor !== null && points.length) {
    const wanted = begin + chart.cursor * (end - begin);
    shown = points.reduce((best, p) => (Math.abs(p.t - wanted) < Math.abs(best.t - wanted) ? p : best));
    parts.push(svg("line", { class: "cursor", x1: x(shown.t), x2: x(shown.t), y1: TOP, y2: H - BOTTOM }));
    parts.push(svg("text", { x: Math.min(width - 60, x(shown.t) + 4), y: TOP + 2 }, clock(shown.t)));
  }
  const said = lines.map((line) => `${line.name} ${shown ? spec.unit(line.of(shown)) : "–"}`);
  drawing.replaceChildren(...parts);
  drawing.setAttribute("aria-label", `${spec.title}: ${said.join(", ") || "no standby"}. Arrow keys move through time.`);
  // The words "no standby" are one child as well, so the figures are counted.
  if (keys.querySelectorAll("em").length !== lines.length || !lines.length) {
    keys.replaceChildren(...lines.map((line, number) =>
      element("span", { class: "key" }, element("i", { class: `c${number}` }), " ", line.name + " ", element("em"), " ")));
    if (!lines.length) keys.append(element("span", { class: "key" }, "no standby"));
  }
  lines.forEach((line, number) => {
    const key = keys.children[number];
    setText(key.querySelector("em"), shown ? spec.unit(line.of(shown)) : "–");
  });
}

// The time that the charts show: as chosen, else the shortest that has all of the history.
function rangeMinutes() {
  if (store.minutes) return store.minutes;
  const all = store.points;
  const seconds = all.length ? (all[all.length - 1].t - all[0].t) / 1000 : 0;
  return seconds > 300 ? 15 : seconds > 60 ? 5 : 1;
}
function showRange() {
  const minutes = rangeMinutes();
  for (const button of document.querySelectorAll(".range button")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.minutes) === minutes));
  }
}

const charts = [];
function makeCharts() {
  for (const button of document.querySelectorAll(".range button")) {
    button.addEventListener("click", () => {
      store.minutes = Number(button.dataset.minutes);
      showRange();
      charts.forEach(draw);
    });
  }
  for (const spec of CHARTS) {
    const [chart, figure] = makeChart(spec);
    charts.push(chart);
    byId("charts").append(figure);
  }
}

// ---- the sections ----

function pairs(list, id) {
  const key = list.map(([name]) => name).join("\n");
  const body = byId(id);
  if (body.dataset.key !== key) {
    body.dataset.key = key;
    body.replaceChildren(...list.map(([name]) => element("div", {}, element("dt", {}, name), element("dd"))));
  }
  list.forEach(([, value, level], number) => {
    const cell = body.children[number].lastElementChild;
    setText(cell, value);
    cell.className = level || "";
  });
}

function showServer(state) {
  const s = state.server;
  document.title = `${s.name} – ${s.role} – Holdfast`;
  setText(byId("node"), s.name);
  const badge = byId("badge");
  setText(badge, s.role);
  badge.className = "badge " + (s.writable || (s.role === "standby" && s.follows) ? "good" : s.serves ? "warn" : "bad");
  const facts = [["epoch", String(s.epoch)], ["up", span(Date.now() - s.started_ms)], ["version", s.version]];
  if (s.lease !== null) facts.push(["lease", s.lease ? "held" : "not held"]);
  pairs(facts, "facts");
  const trouble = [s.held, s.why].filter((text, at, all) => text && all.indexOf(text) === at).join("; ");
  byId("trouble").hidden = !trouble;
  setText(byId("trouble"), trouble);
}

function worstStandby(state) {
  const lags = state.standbys.map((one) => one.lag.commit.bytes ?? one.lag.hot.bytes).filter(isKnown);
  return lags.length ? Math.max(...lags) : null;
}

function showTiles(state) {
  const p = store.points[store.points.length - 1] || {};
  const s = state.server;
  const data = state.disks.find((disk) => disk.of === "data");
  const away = state.standbys.filter((one) => !one.connected).length;
  const tiles = [
    ["Requests", rate(p.rps)],
    ["Commits", rate(p.tps)],
    ["Commit p99", ms(p.com99)],
    ["Sync p99", ms(p.sync99)],
    ["Active sessions", `${count(p.active)} of ${count(state.sessions_all)}`],
    ["Waiting for locks", count(p.waiting), p.waiting > 0 ? "warn" : ""],
    ["Errors", rate(p.eps), p.eps > 0 ? "warn" : ""],
    ["Waiting at the gate", count(s.gate_waiting), s.gate_waiting > 0 ? "warn" : ""],
    ["Standbys", state.standbys.length ? `${state.standbys.length - away} of ${state.standbys.length}` : "none", away ? "bad" : ""],
    ["Largest lag", bytes(worstStandby(state))],
    ["Trail kept", bytes(s.retained_bytes)],
    ["Disk free", data ? bytes(data.free_bytes) : "–", data && data.free_bytes < data.size_bytes * 0.1 ? "bad" : ""],
  ];
  if (s.role === "standby") tiles.splice(8, 2, ["Behind its master", bytes(s.lag_bytes)], ["Behind, in time", isKnown(s.lag_ms) ? span(s.lag_ms) : "–"]);
  pairs(tiles, "tiles");
}

// A table whose rows stay the same elements, so that focus and selection stay where they are.
function table(body, columns, rows, keyOf, empty, label) {
  if (!rows.length) {
    if (body.dataset.empty !== empty) {
      body.replaceChildren(element("p", { class: "empty" }, empty));
      body.dataset.empty = empty;
      body.rows = undefined;
    }
    return;
  }
  if (!body.rows) {
    delete body.dataset.empty;
    const head = element("tr", {}, ...columns.map((c) => element("th", { scope: "col", class: c.kind }, c.title)));
    body.tbody = element("tbody");
    const whole = element("table", { "aria-label": label }, element("thead", {}, head), body.tbody);
    body.replaceChildren(element("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": label }, whole));
    body.rows = new Map();
  }
  // A row that moves to another place loses the focus.
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const seen = new Set();
  rows.forEach((row, number) => {
    const key = keyOf(row);
    seen.add(key);
    let line = body.rows.get(key);
    if (!line) {
      line = element("tr", {}, ...columns.map((c) => element("td", { class: c.kind })));
      line.cells_ = [...line.children];
      columns.forEach((c, at) => c.make && c.make(line.cells_[at], key));
      body.rows.set(key, line);
    }
    line.row = row;
    line.className = row.class_ || "";
    columns.forEach((c, at) => (c.make ? c.update && c.update(line.cells_[at], row) : setText(line.cells_[at], c.text(row))));
    if (body.tbody.children[number] !== line) body.tbody.insertBefore(line, body.tbody.children[number] || null);
  });
  for (const [key, line] of body.rows) if (!seen.has(key)) { line.remove(); body.rows.delete(key); }
  if (focused && focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

function lagText(lag) {
  const age = lag.seconds > 0 ? `, ${span(lag.seconds * 1000)}` : "";
  return isKnown(lag.bytes) ? bytes(lag.bytes) + (lag.bytes > 0 ? age : "") : "not known";
}
const STANDBY_COLUMNS = [
  { title: "Name", text: (r) => r.name },
  { title: "State", text: (r) => r.state },
  { title: "Commits wait", text: (r) => (r.synchronous ? "yes" : "no") },
  { title: "Lacks: received", kind: "num", text: (r) => lagText(r.lag.warm) },
  { title: "on its disk", kind: "num", text: (r) => lagText(r.lag.hot) },
  { title: "visible there", kind: "num", text: (r) => lagText(r.lag.commit) },
  { title: "Applies", kind: "num", text: (r) => (r.apply_bytes_per_s ? bytes(r.apply_bytes_per_s) + "/s" : "–") },
  { title: "Governor", kind: "num", text: (r) => (r.delay_us ? ms(r.delay_us / 1000) + " per boxcar" : "no delay") },
  { title: "Why", kind: "reason", text: (r) => r.reason },
];
function showStandbys(state) {
  const empty = state.server.role === "standby"
    ? "This server is a standby. Its master shows how far it is."
    : "No standby is registered: commits are on this server's disks only.";
  state.standbys.forEach((one) => { one.class_ = one.connected ? "" : "blocker"; });
  table(byId("standbys-body"), STANDBY_COLUMNS, state.standbys, (r) => r.name, empty, "Standbys");
}

function act(pid, kind) {
  const session = store.last.sessions.find((one) => one.pid === pid);
  if (!session) return;
  const verb = kind === "cancel" ? "Cancel the statement of" : "Terminate";
  const dialog = byId("confirm");
  setText(byId("confirm-title"), `${verb} session ${pid}?`);
  setText(byId("confirm-text"), `Role ${session.user}, database ${session.database}` +
    (session.application ? `, application ${session.application}` : "") + `. ` +
    (kind === "cancel" ? "The statement ends with an error; the session stays." : "Its transaction is rolled back and the client is disconnected."));
  setText(byId("confirm-query"), session.query || "(no statement yet)");
  const yes = byId("confirm-yes"), no = byId("confirm-no");
  setText(yes, kind === "cancel" ? "Cancel the statement" : "Terminate the session");
  yes.onclick = async () => {
    dialog.close();
    const [ok, answer] = await post("api/signal", { pid, kind });
    setText(byId("done"), ok ? `${kind === "cancel" ? "Cancelled the statement of" : "Terminated"} session ${pid}.` : answer.error);
    poll();
  };
  no.onclick = () => dialog.close();
  dialog.showModal();
  no.focus();
}

const SESSION_COLUMNS = [
  { title: "PID", kind: "num", text: (r) => String(r.pid) },
  { title: "State", text: (r) => r.state },
  { title: "Waits for", text: (r) => (r.waits_for.length ? `session ${r.waits_for.join(", ")}` : r.wait || "") },
  { title: "For", kind: "num", text: (r) => span(Math.max(0, Date.now() - (r.state === "active" ? r.asked : r.changed))) },
  { title: "Role", text: (r) => r.user },
  { title: "Database", text: (r) => r.database },
  {
    title: "Application", kind: "brief",
    make: (cell) => cell.append(element("span", {})),
    update: (cell, row) => { setText(cell.firstChild, row.application); cell.firstChild.title = row.application; },
  },
  { title: "Client", text: (r) => r.client },
  { title: "Locks", kind: "num", text: (r) => count(r.locks) },
  {
    title: "Statement", kind: "query",
    make: (cell) => cell.append(element("span", { class: "mono" })),
    update: (cell, row) => { setText(cell.firstChild, row.query); cell.firstChild.title = row.query; },
  },
  {
    title: "", kind: "actions",
    make: (cell, pid) => cell.append(
      element("button", { type: "button", class: "small", "aria-label": `Cancel the statement of session ${pid}`, onclick: () => act(pid, "cancel") }, "Cancel"),
      element("button", { type: "button", class: "small", "aria-label": `Terminate session ${pid}`, onclick: () => act(pid, "terminate") }, "Terminate")),
    update: (cell, row) => { cell.firstChild.disabled = row.state !== "active"; },
  },
];
function showSessions(state) {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const blockers = new Set(state.sessions.flatMap((one) => one.waits_for));
  const isShown = (one) => {
    const text = [one.pid, one.user, one.database, one.application, one.client, one.state, one.query].join(" ").toLowerCase();
    const busy = one.state !== "idle" || one.waits_for.length || blockers.has(one.pid);
    return (busy || byId("idle").checked || words.length) && words.every((word) => text.includes(word));
  };
  const rows = state.sessions.filter(isShown);
  rows.forEach((one) => { one.class_ = one.waits_for.length ? "blocked" : blockers.has(one.pid) ? "blocker" : ""; });
  const idle = state.sessions.filter((one) => one.state === "idle").length;
  setText(byId("sessions-count"), `${rows.length} shown, ${idle} idle, ${state.sessions_all} in all of ${state.server.sessions_max}`);
  const empty = state.sessions.length ? "No session is busy." : "No session is connected.";
  table(byId("sessions-body"), SESSION_COLUMNS, rows, (r) => r.pid, words.length ? "No session matches the filter." : empty, "Sessions");
}

function showWaits(state) {
  const body = byId("waits-body");
  const waiting = state.sessions.filter((one) => one.waits_for.length);
  const key = JSON.stringify(waiting.map((one) => [one.pid, one.waits_for]));
  if (body.dataset.key === key) return;
  body.dataset.key = key;
  if (!waiting.length) return body.replaceChildren(element("p", { class: "empty" }, "No session waits for a lock."));
  const known = new Map(state.sessions.map((one) => [one.pid, one]));
  const pids = new Set(waiting.map((one) => one.pid));
  const roots = [...new Set(waiting.flatMap((one) => one.waits_for))].filter((pid) => !pids.has(pid));
  const item = (pid, above) => {
    const one = known.get(pid);
    const text = one ? `${one.user}, ${one.state}: ${one.query}` : "not a client's session";
    // A session that another waiting one is only ahead of is shown below the one that both wait for.
    const isAhead = (other) => one && one.waits_for.some((first) => other.waits_for.includes(first));
    const below = waiting.filter((other) => other.waits_for.includes(pid) && !above.includes(other.pid) && !isAhead(other));
    const queue = one ? one.waits_for.filter((first) => pids.has(first) && !above.slice(-1).includes(first)) : [];
    const line = element("li", { role: "treeitem", "aria-expanded": below.length ? "true" : undefined },
      element("b", {}, `session ${pid}`), " ", element("span", { class: "muted mono" }, text.slice(0, 200)),
      queue.length ? element("span", { class: "muted" }, ` (behind session ${queue.join(", ")})`) : null);
    if (below.length) line.append(element("ul", { role: "group" }, ...below.map((other) => item(other.pid, [...above, pid]))));
    return line;
  };
  // In a deadlock, which ends by itself, nothing is at the root.
  const top = roots.length ? roots : [waiting[0].pid];
  body.replaceChildren(element("ul", { class: "tree", role: "tree", "aria-label": "A session, and below it those that wait for it" }, ...top.map((pid) => item(pid, [pid]))));
}

const DISK_COLUMNS = [
  { title: "For", text: (r) => r.of },
  { title: "Path", text: (r) => r.path },
  { title: "Free", kind: "num", text: (r) => bytes(r.free_bytes) },
  { title: "Size", kind: "num", text: (r) => bytes(r.size_bytes) },
  {
    title: "Used",
    make: (cell) => cell.append(element("meter", { min: "0", max: "1", high: "0.9", "aria-label": "used part" }), element("span")),
    update: (cell, r) => {
      const used = r.size_bytes ? 1 - r.free_bytes / r.size_bytes : 0;
      cell.firstChild.value = used;
      setText(cell.lastChild, " " + percent(used));
    },
  },
];
function showStorage(state) {
  const body = byId("storage-body");
  if (!body.made) {
    body.made = true;
    body.append(element("div", { id: "disks" }), element("dl", { class: "pairs", id: "trail" }));
  }
  table(byId("disks"), DISK_COLUMNS, state.disks, (r) => r.of, "No disk can be asked.", "Disks");
  const s = state.server, archive = s.archive, mirror = s.mirror;
  pairs([
    ["Trail on disk", `${bytes(s.trail_bytes)} in ${s.trail_segments} segments`],
    ["Trail kept", bytes(s.retained_bytes)],
    ["Durable up to LSN", String(s.durable_lsn)],
    ["Recovery would take", `${ms(s.redo_ms)} of ${ms(s.redo_max_ms)}`, s.redo_ms > s.redo_max_ms ? "warn" : ""],
    ["Recovery would replay", bytes(s.redo_bytes)],
    ["Checkpoints", count(s.checkpoints)],
    ["Page versions in memory", bytes(s.memory_bytes)],
    ["Page versions in scratch", bytes(s.scratch_bytes)],
    ["Oldest snapshot", isKnown(s.oldest_snapshot_ms) ? span(s.oldest_snapshot_ms) : "none is held"],
    ["Memory of the process", bytes(s.resident_bytes)],
    ["Deadlocks, waits for locks", `${count(s.deadlocks)}, ${count(s.lock_waits)}`],
    ["Refused logins", count(s.authentication_failures)],
    ["Archive", archive ? `${archive.state}, ${bytes(archive.waiting_bytes)} waiting` : "none", archive && archive.error ? "bad" : ""],
    ["Mirror", mirror ? `${mirror.state}, ${bytes(mirror.behind_bytes)} behind` : "none"],
  ], "trail");
}

function showEvents() {
  const body = byId("events-body");
  const newest = store.events.length ? store.events[store.events.length - 1].n : 0;
  if (body.dataset.newest === String(newest)) return;
  body.dataset.newest = String(newest);
  if (!newest) return body.replaceChildren(element("p", { class: "empty" }, "Nothing has happened since the server started."));
  const level = { error: "bad", warn: "warn" };
  const lines = [...store.events].reverse().map((event) => element("li", {},
    element("time", { datetime: new Date(event.at).toISOString(), title: new Date(event.at).toString() }, clock(event.at)),
    element("span", { class: level[event.level] || "muted" }, event.level),
    element("span", { class: "text" }, event.text)));
  body.replaceChildren(element("ol", { class: "log tall", tabindex: "0", role: "log", "aria-label": "Recent events, newest first" }, ...lines));
}

// ---- the server ----

async function post(path, body) {
  const headers = { "content-type": "application/json", "x-csrf-token": store.token };
  try {
    const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), credentials: "same-origin" });
    return [response.ok, await response.json()];
  } catch (error) {
    return [false, { error: "the server does not answer" }];
  }
}

let timer, polling = false;
async function poll() {
  clearTimeout(timer);
  if (polling) return;
  polling = true;
  try {
    const answer = await fetch(`api/state?points=${store.point}&events=${store.event}`, { credentials: "same-origin" });
    if (answer.status === 401) return showLogin();
    if (!answer.ok) throw new Error(String(answer.status));
    take(await answer.json());
  } catch (error) {
    document.body.classList.add("stale");
    byId("live").className = "live lost";
    setText(byId("live"), "no connection, trying again");
  } finally {
    polling = false;
  }
  timer = setTimeout(poll, document.hidden ? HIDDEN_POLL_MS : POLL_MS);
}

function take(state) {
  store.last = state;
  store.token = state.operator.token;
  for (const p of state.points) {
    // A server that has started again counts from the start.
    if (p.n <= store.point) store.points = [];
    store.points.push(p);
    store.point = p.n;
  }
  store.points.splice(0, Math.max(0, store.points.length - POINTS_MAX));
  for (const event of state.events) {
    if (event.n <= store.event) store.events = [];
    store.events.push(event);
    store.event = event.n;
  }
  store.events.splice(0, Math.max(0, store.events.length - 500));
  byId("login").hidden = true;
  byId("app").hidden = false;
  document.body.classList.remove("stale");
  byId("live").className = "live";
  setText(byId("live"), "live");
  setText(byId("operator"), state.operator.role);
  showServer(state);
  showTiles(state);
  showRange();
  charts.forEach(draw);
  showStandbys(state);
  showSessions(state);
  showWaits(state);
  showStorage(state);
  showEvents();
}

// ---- login ----

function showLogin(error = "") {
  clearTimeout(timer);
  Object.assign(store, { points: [], events: [], point: 0, event: 0, last: null, token: "" });
  byId("app").hidden = true;
  byId("login").hidden = false;
  setText(byId("login-error"), error);
  byId("role").focus();
}

async function logIn(body) {
  const [ok, answer] = await post("api/login", body);
  byId("password").value = "";
  if (!ok) return showLogin(answer.error);
  poll();
}

// Asks first: a refused request would be an error in the browser's console.
async function resume() {
  try {
    const answer = await fetch("api/session", { credentials: "same-origin" });
    const { role } = await answer.json();
    if (role) poll(); else showLogin();
  } catch (error) {
    showLogin("the server does not answer");
  }
}

function begin() {
  try {
    const chosen = localStorage.getItem("theme");
    if (chosen) document.documentElement.dataset.theme = chosen;
  } catch (error) { /* storage is switched off: the system's theme */ }
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* as above */ }
  });
  byId("login-form").addEventListener("submit", (event) => {
    event.preventDefault();
    logIn({ role: byId("role").value, password: byId("password").value });
  });
  byId("logout").addEventListener("click", async () => { await post("api/logout", {}); showLogin(); });
  byId("filter").addEventListener("input", () => store.last && showSessions(store.last));
  byId("idle").addEventListener("change", () => store.last && showSessions(store.last));
  document.addEventListener("visibilitychange", () => { if (!document.hidden && store.last) poll(); });
  window.addEventListener("resize", () => store.last && charts.forEach(draw));
  makeCharts();
  const ticket = new URLSearchParams(location.hash.slice(1)).get("ticket");
  if (ticket) {
    history.replaceState(null, "", location.pathname);
    logIn({ ticket });
  } else {
    resume();
  }
}
begin();
