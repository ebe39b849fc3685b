// The page of `covey dash`: asks for `state` every two seconds and shows the differences between two answers.
// What comes from the cluster is only ever text: names are chosen by users.
"use strict";

const INTERVAL_MS = 2000;
const POINTS = 150; // five minutes
const CLIENTS = 20;
const OPERATIONS = 20;
const SLOW = 50;

const history = { read: [], write: [], data: [], meta: [] };
let before = null;

const byId = (id) => document.getElementById(id);

function scaled(value, step, units) {
  let unit = 0;
  while (value >= step && unit + 1 < units.length) {
    value /= step;
    unit += 1;
  }
  const digits = value >= 100 || unit === 0 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const count = (value) => scaled(value, 1000, ["", "k", "M", "G"]).trim();
const time = (us) => scaled(us, 1000, ["µs", "ms", "s"]);

function cell(text, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function fill(table, headings, rows, nothing) {
  const head = document.createElement("tr");
  for (const [text, kind] of headings) {
    const made = document.createElement("th");
    made.textContent = text;
    made.scope = "col";
    if (kind) made.className = kind;
    head.append(made);
  }
  const lines = rows.map((cells) => {
    const line = document.createElement("tr");
    line.append(...cells);
    return line;
  });
  if (lines.length === 0) {
    const only = cell(nothing, "empty");
    only.colSpan = headings.length;
    const line = document.createElement("tr");
    line.append(only);
    lines.push(line);
  }
  table.replaceChildren(head, ...lines);
}

// What a line has counted in the last interval, per second; all of it if it was begun anew.
function rates(now, old, seconds) {
  const isNew = !old || old.count > now.count;
  const rate = (key) => ((now[key] ?? 0) - (isNew ? 0 : old[key] ?? 0)) / seconds;
  return { requests: rate("count"), bytes: rate("bytes") };
}

// Every line of every node: its kind, part and name, its values, and its rates once there are two answers.
function lines(state) {
  const all = [];
  for (const node of state.nodes) {
    const earlier = before?.nodes.find((one) => one.node === node.node)?.stats;
    const seconds = before ? (state.at_ms - before.at_ms) / 1000 : 0;
    for (const [line, values] of Object.entries(node.stats ?? {})) {
      const kind = line.startsWith("op ") ? "op" : line.startsWith("client ") ? "client" : null;
      if (!kind) continue;
      const name = line.slice(kind.length + 1);
      const end = name.search(kind === "op" ? /\./ : / /);
      const rate = earlier && seconds > 0 ? rates(values, earlier[line], seconds) : null;
      all.push({ kind, node: node.node, part: name.slice(0, end), name: name.slice(end + 1), values, rate });
    }
  }
  return all;
}

function chart(id, show) {
  const points = history[id];
  const svg = byId(`${id}-chart`);
  const top = Math.max(1, ...points);
  svg.setAttribute("viewBox", `0 0 ${POINTS - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  const make = (name, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const first = POINTS - points.length;
  const drawn = points.map((value, index) => `${first + index},${98 - (94 * value) / top}`).join(" ");
  svg.replaceChildren(make("line", { x1: 0, x2: POINTS, y1: 98, y2: 98 }), make("polyline", { points: drawn }));
  const now = points.at(-1);
  byId(id).textContent = now === undefined ? "–" : show(now);
}

function charts(all) {
  if (!before) return;
  const sum = (keep, of) =>
    all.filter((line) => line.kind === "op" && line.rate && keep(line)).reduce((total, line) => total + of(line.rate), 0);
  const now = {
    read: sum((line) => line.part === "data" && line.name === "read", (rate) => rate.bytes),
    write: sum((line) => line.part === "data" && line.name === "write", (rate) => rate.bytes),
    data: sum((line) => line.part === "data", (rate) => rate.requests),
    meta: sum((line) => line.part === "meta", (rate) => rate.requests),
  };
  for (const [id, value] of Object.entries(now)) {
    history[id].push(value);
    history[id].splice(0, history[id].length - POINTS);
    chart(id, id === "read" || id === "write" ? (value) => `${bytes(value)}/s` : (value) => `${count(value)}/s`);
  }
}

function nodes(state) {
  const rows = state.nodes.map((node) => {
    const space = cell("", "number");
    if (node.bytes_total) {
      const free = node.bytes_free ?? 0;
      const meter = document.createElement("meter");
      Object.assign(meter, { min: 0, max: node.bytes_total, high: node.bytes_total * 0.9, value: node.bytes_total - free });
      space.append(`${bytes(free)} free of ${bytes(node.bytes_total)} `, meter);
    } else {
      space.textContent = "–";
    }
    const metadata = node.metadata_bytes_max
      ? `${bytes(node.metadata_bytes_used)} of ${bytes(node.metadata_bytes_max)}` : "–";
    return [
      cell(node.node, "name"), cell(node.roles.join("+")),
      cell(node.reason ? `${node.state}: ${node.reason}` : node.state, node.state === "up" ? "good" : "name bad"),
      space, cell(metadata, "number"),
      cell(node.latency_us == null ? "–" : time(node.latency_us), "number"), cell(node.version ?? "–"),
    ];
  });
  fill(byId("nodes"), [["Node"], ["Roles"], ["State"], ["Store", "number"], ["Metadata", "number"], ["Latency", "number"], ["Version"]],
    rows, "no servers");
  const down = state.nodes.filter((node) => node.state !== "up");
  const summary = byId("summary");
  const servers = (many) => (many === 1 ? "1 server" : `${many} servers`);
  summary.textContent = down.length === 0
    ? `${servers(state.nodes.length)}, all up`
    : `${down.length} of ${servers(state.nodes.length)} not up: ${down.map((node) => node.node).join(", ")}`;
  summary.className = down.length === 0 ? "" : "bad";
}

function busiest(all, kind, most) {
  const value = (line) => (line.rate ? [line.rate.bytes, line.rate.requests] : [0, 0]);
  const ordered = all.filter((line) => line.kind === kind && line.values.count > 0);
  ordered.sort((a, b) => value(b)[0] - value(a)[0] || value(b)[1] - value(a)[1] || b.values.count - a.values.count);
  return ordered.slice(0, most);
}

// Why there is nothing to see, if that is because of who runs `covey dash`.
function keptFromUs(state) {
  const nodes = state.nodes.filter((node) => node.kept_from_us).map((node) => node.node);
  return nodes.length === 0 ? null : `${nodes.join(", ")}: only root and the servers' owner see this`;
}

function tables(all, kept) {
  const rate = (line, of, show) => cell(line.rate ? show(of(line.rate)) : "–", "number");
  const shared = (line) => [
    rate(line, (rate) => rate.requests, (value) => `${count(value)}/s`),
    rate(line, (rate) => rate.bytes, (value) => `${bytes(value)}/s`),
  ];
  const clients = busiest(all, "client", CLIENTS).map((line) => [
    cell(line.name, "name"), cell(`${line.node} ${line.part}`), ...shared(line),
    cell(count(line.values.count), "number"), cell(bytes(line.values.bytes ?? 0), "number"),
  ]);
  fill(byId("clients"), [["Client"], ["At"], ["Requests", "number"], ["Traffic", "number"], ["Requests in all", "number"], ["Bytes in all", "number"]],
    clients, kept ?? "no client is connected");
  const operations = busiest(all, "op", OPERATIONS).map((line) => [
    cell(`${line.part}.${line.name}`), cell(line.node), ...shared(line),
    cell(time(line.values.p50_us ?? 0), "number"), cell(time(line.values.p99_us ?? 0), "number"),
    cell(count(line.values.errors ?? 0), "number"),
  ]);
  fill(byId("operations"), [["Operation"], ["At"], ["Requests", "number"], ["Traffic", "number"], ["Median", "number"], ["99 of 100", "number"], ["Errors in all", "number"]],
    operations, kept ?? "nothing was asked yet");
}

function slow(state, kept) {
  const items = state.nodes.flatMap((node) => (node.slow ?? []).map((line) => `${node.node}: ${line}`));
  const list = byId("slow");
  list.replaceChildren(...items.slice(0, SLOW).map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
  if (items.length === 0) {
    const item = document.createElement("li");
    item.className = "empty";
    item.textContent = kept ?? "none took longer than a second";
    list.append(item);
  }
}

function show(state) {
  document.title = byId("cluster").textContent = state.cluster;
  const all = lines(state);
  charts(all);
  nodes(state);
  const kept = keptFromUs(state);
  tables(all, kept);
  slow(state, kept);
  before = state;
}

async function look() {
  try {
    const answer = await fetch("state", { cache: "no-store" });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    const state = await answer.json();
    // Another reader may have asked just before: then the answer is the same.
    if (state.at_ms !== before?.at_ms) show(state);
  } catch (error) {
    const summary = byId("summary");
    summary.textContent = `covey dash does not answer: ${error.message}`;
    summary.className = "bad";
  }
  setTimeout(look, INTERVAL_MS);
}

look();
