// The page of `covey dash`: asks for `state` every two seconds and shows the differences between two answers.
// What comes from the cluster is only ever text: names are chosen by users.
"use strict";

const INTERVAL_MS = 2000;
const POINTS = 150; // five minutes
const CLIENTS = 20;
const FILES = 20;
const OPERATIONS = 20;

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
const counted = (many, one) => `${many} ${one}${many === 1 ? "" : "s"}`;
const span = (seconds) => (seconds < 60 ? `${Math.ceil(seconds)} s`
  : seconds < 3600 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`);

function cell(text, kind) {
  const made = document.createElement("td");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function item(text, kind) {
  const made = document.createElement("li");
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// How full something is, in words and as a bar.
function share(text, value, max) {
  const made = cell("", "number share");
  const meter = document.createElement("meter");
  Object.assign(meter, { min: 0, max, high: max * 0.9, value });
  made.append(`${text} `, meter);
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
  const [read, written] = [rate("bytes_read"), rate("bytes_written")];
  // Lines of files have no sum.
  return { requests: rate("count"), bytes: now.bytes === undefined ? read + written : rate("bytes"), read, written };
}

// Every line of every node: its kind, part and name, its values, and its rates once there are two answers.
function lines(state) {
  const all = [];
  for (const node of state.nodes) {
    const earlier = before?.nodes.find((one) => one.node === node.node)?.stats;
    const seconds = before ? (state.at_ms - before.at_ms) / 1000 : 0;
    for (const [line, values] of Object.entries(node.stats ?? {})) {
      const kind = ["op", "client", "file"].find((one) => line.startsWith(`${one} `));
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
    read: sum((line) => line.part === "data" && ["read", "read_view"].includes(line.name), (rate) => rate.bytes),
    write: sum((line) => line.part === "data" && ["write", "write_view"].includes(line.name), (rate) => rate.bytes),
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
    const free = node.bytes_free ?? 0;
    const space = node.bytes_total
      ? share(`${bytes(free)} free of ${bytes(node.bytes_total)}`, node.bytes_total - free, node.bytes_total) : cell("–", "number");
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

function places(state, kept) {
  const rows = (state.places ?? []).map((place) => [
    cell(place.server, "name"), cell(place.serving ? "serving" : "away", place.serving ? "good" : "bad"),
    cell(place.new_files ? "yes" : `no: ${place.reasons.join(", ")}`, place.new_files ? "" : "bad"),
    place.bytes_total
      ? share(`${bytes(place.bytes_used)} used of ${bytes(place.bytes_total)}`, place.bytes_used, place.bytes_total) : cell("–", "number"),
  ]);
  fill(byId("places"), [["I/O server"], ["State"], ["New files"], ["Disk", "number"]],
    rows, kept ?? "the metadata server does not answer");
}

function moving(name, work) {
  const made = item("");
  const total = Math.max(work.bytes_total, work.bytes);
  const left = work.bytes > 0 && work.seconds > 0 ? ((total - work.bytes) * work.seconds) / work.bytes : null;
  const bar = document.createElement("progress");
  bar.max = 1;
  if (total > 0) bar.value = work.bytes / total;
  const words = work.bytes_total > 0 ? `${bytes(work.bytes)} of ${bytes(total)}` : bytes(work.bytes);
  const estimate = work.bytes_total > 0 && left !== null ? `, about ${span(left)} left` : "";
  made.textContent = `covey server ${name}: ${words} copied in ${span(work.seconds)}${estimate} `;
  made.append(bar);
  return made;
}

function checked(check) {
  if (!check) return item("no covey fsck since the metadata server started", "empty");
  const unasked = check.unasked > 0 ? `; ${counted(check.unasked, "I/O server")} could not be asked` : "";
  const found = check.found === 0 ? "nothing found"
    : check.left === 0 ? `${counted(check.found, "finding")}, all repaired`
      : `${counted(check.found, "finding")}, ${check.left} not repaired: covey fsck lists them`;
  return item(`covey fsck at ${check.at}: ${found}${unasked}`, check.left > 0 || check.unasked > 0 ? "bad" : "");
}

function works(state, kept) {
  const items = [];
  for (const node of state.nodes.filter((node) => node.stats)) {
    for (const [line, values] of Object.entries(node.stats)) {
      if (line.startsWith("moving ")) items.push(moving(line.slice("moving ".length), values));
    }
    const lost = node.stats["data.objects_lost"]?.value ?? 0;
    if (lost > 0) {
      items.push(item(`${node.node}: ${counted(lost, "object")} lost with its disk: covey files --on ${node.node} --lost lists the files`, "bad"));
    }
  }
  const meta = state.nodes.find((node) => node.stats && node.roles.includes("meta"));
  if (meta) items.push(checked(meta.stats.checked));
  byId("works").replaceChildren(...(items.length > 0 ? items : [item(kept ?? "the metadata server does not answer", "empty")]));
}

// Lines of a kind that belong together, at whatever server they were counted: their sums, and the servers.
function together(all, kind, belongs) {
  const groups = new Map();
  for (const line of all.filter((line) => line.kind === kind)) {
    const key = JSON.stringify(belongs(line.values));
    const group = groups.get(key);
    if (!group) {
      groups.set(key, { kind, nodes: new Set([line.node]), values: { ...line.values }, rate: line.rate && { ...line.rate } });
      continue;
    }
    group.nodes.add(line.node);
    for (const sum of ["count", "bytes", "bytes_read", "bytes_written"]) {
      group.values[sum] = (group.values[sum] ?? 0) + (line.values[sum] ?? 0);
    }
    if (line.rate) {
      group.rate ??= { requests: 0, bytes: 0, read: 0, written: 0 };
      for (const key of Object.keys(line.rate)) group.rate[key] += line.rate[key];
    }
  }
  return [...groups.values()];
}

// The servers of such a group: a few by name, all of them under the pointer.
function where(nodes) {
  const names = [...nodes];
  const few = names.length <= 4 ? names : [...names.slice(0, 3), `${names.length - 3} more`];
  const made = cell(few.join(", "), "name");
  made.title = names.join(", ");
  return made;
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

function tables(all, paths, kept) {
  const rate = (line, of, show) => cell(line.rate ? show(of(line.rate)) : "–", "number");
  const shared = (line) => [
    rate(line, (rate) => rate.requests, (value) => `${count(value)}/s`),
    rate(line, (rate) => rate.bytes, (value) => `${bytes(value)}/s`),
  ];
  const data = (line, of) => rate(line, of, (value) => `${bytes(value)}/s`);
  const ofClients = together(all, "client", (values) => [values.client, values.job]);
  const clients = busiest(ofClients, "client", CLIENTS).map((line) => [
    cell(line.values.client, "name"), cell(line.values.job || "–", "name"), where(line.nodes),
    data(line, (rate) => rate.read), data(line, (rate) => rate.written),
    rate(line, (rate) => rate.requests, (value) => `${count(value)}/s`),
    cell(count(line.values.count), "number"), cell(bytes(line.values.bytes ?? 0), "number"),
  ]);
  fill(byId("clients"), [["Client"], ["Job"], ["At"], ["Reads", "number"], ["Writes", "number"], ["Requests", "number"], ["Requests in all", "number"], ["Bytes in all", "number"]],
    clients, kept ?? "no client is connected");
  const ofFiles = together(all, "file", (values) => [values.file, values.client, values.job]);
  const files = busiest(ofFiles, "file", FILES).map((line) => [
    cell(paths[line.values.file] ?? `file ${line.values.file}`, "name"), cell(line.values.client, "name"),
    cell(line.values.job || "–", "name"), where(line.nodes),
    data(line, (rate) => rate.read), data(line, (rate) => rate.written),
    cell(bytes(line.values.bytes_read), "number"), cell(bytes(line.values.bytes_written), "number"),
  ]);
  fill(byId("files"), [["File"], ["Client"], ["Job"], ["At"], ["Reads", "number"], ["Writes", "number"], ["Read", "number"], ["Written", "number"]],
    files, kept ?? "no file was read or written");
  const operations = busiest(all, "op", OPERATIONS).map((line) => [
    cell(`${line.part}.${line.name}`), cell(line.node), ...shared(line),
    cell(time(line.values.p50_us ?? 0), "number"), cell(time(line.values.p99_us ?? 0), "number"),
    cell(count(line.values.errors ?? 0), "number"),
  ]);
  fill(byId("operations"), [["Operation"], ["At"], ["Requests", "number"], ["Traffic", "number"], ["Median", "number"], ["99 of 100", "number"], ["Errors in all", "number"]],
    operations, kept ?? "nothing was asked yet");
}

function slow(state, kept) {
  const items = (state.slow ?? []).map((one) => item(`${one.at} ${one.node}: ${one.what}`));
  const nothing = () => item(kept ?? (state.slow ? "no request was slow" : "no server answers"), "empty");
  byId("slow").replaceChildren(...(items.length > 0 ? items : [nothing()]));
}

function show(state) {
  document.title = byId("cluster").textContent = state.cluster;
  const all = lines(state);
  charts(all);
  nodes(state);
  const kept = keptFromUs(state);
  works(state, kept);
  places(state, kept);
  tables(all, state.paths ?? {}, kept);
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
