// The listing: rows that are drawn while they are in sight, so that 20,000 of them open at once.

const BOARD_LANES = 9;
const CELL = 6; // pixels of a register's column
let rows = []; // ["block", number] or ["code", n] or ["finding", finding]
let rowOf = []; // instruction -> row that shows it, or the block that it is folded into
let folded = new Set(); // blocks
let at = 0; // the instruction that is selected
let register = ""; // ... and the register
let hits = [];
let columns = [];
let off = new Set(); // columns that are not wanted

const narrow = () => window.matchMedia("(max-width: 760px)").matches;
const ALL_COLUMNS = {
  boards: { title: "scoreboards: an arrow from who sets one to who waits for it", width: () => `${K.lanes * 7 + 16}px`, heads: [["boards", "SB"]] },
  address: { title: "byte address", width: () => "5.2ch", heads: [["address", "addr"]] },
  heat: {
    title: "counters of the run", width: () => heats().map((one) => HEATS[one].width).join(" "), when: () => K.counters.warps,
    get heads() { return heats().map((one) => [one, ...HEATS[one].head]); },
  },
  control: {
    title: "control code", width: () => "7ch 2.6ch 2.6ch 2.6ch 3ch",
    heads: [["wait", "wait", "scoreboards that it waits for"], ["sb", "rd", "scoreboard set until its sources are read"],
      ["sb", "wr", "scoreboard set until its results are there"], ["yield", "Y", "yields to another warp"], ["stall", "st", "stall: cycles to the next instruction"]],
  },
  stalls: { title: "stall as a width: a cycle is 4 pixels; red: cycles lost to register banks", width: () => "72px", heads: [["cycles", "cycles"]] },
  pipe: { title: "the pipe that executes it", width: () => "8ch", heads: [["pipe", "pipe"]] },
  code: { title: "instruction, with the author's names of registers", width: () => `${K.wide}ch`, heads: [["code", "instruction"]] },
  source: { title: "source line", width: () => "minmax(30ch, 64ch)", when: () => K.files.length, heads: [["source", "source"]] },
  banks: { title: "register banks: cycles lost; places that come from the reuse cache (=) and are left there (+)", width: () => "9ch", heads: [["banks", "banks"]] },
  held: {
    title: "registers in use", width: () => Object.keys(K.held).map(() => "9ch").join(" ") || "0",
    get heads() { return Object.keys(K.held).map((file) => ["held", file, `${file} in use; most: ${K.peaks[file][0]}`]); },
  },
  life: { title: "life ranges: where each register holds a value that is still read", width: () => `${K.registers.length * CELL + 12}px`, heads: [["life", "life ranges"]] },
};
// Counters that are shown, where any instruction has one.
const HEATS = {
  warps: { width: "7ch", head: ["warps", "times that a warp ran it"], any: () => true },
  lanes: { width: "5.5ch", head: ["lanes", "active lanes, on average"], any: () => true },
  wave: { width: "8ch", head: ["wavefr.", "wavefronts of shared memory"], any: () => K.most.wavefronts },
  extra: { width: "8ch", head: ["confl.", "wavefronts that bank conflicts added"], any: () => K.most.wavefronts },
  sectors: { width: "7ch", head: ["sect.", "32-byte sectors of global memory a request"], any: () => K.most.sectors },
};
const heats = () => Object.keys(HEATS).filter((one) => HEATS[one].any());
const PHONE_OFF = ["heat", "stalls", "pipe", "banks", "held", "source", "life"];

function prepareList() {
  K.registers = Object.keys(K.life);
  K.arrows = lanes(K.boards);
  K.wide = widest();
  folded = new Set();
  at = Math.min(at, K.size - 1);
  register = "";
  drawTools();
  layout();
}

// Characters of the column of instructions: nearly all of them fit.
function widest() {
  const lengths = K.text.map((text, n) => tokens(text).reduce((sum, [what, part]) => sum + part.length + (what === "reg" && K.names[part] ? K.names[part].length : 0), n in K.targets ? 11 : 1));
  return Math.max(24, Math.min(72, lengths.sort((a, b) => a - b)[Math.floor(0.995 * (lengths.length - 1))] + 1));
}

// Arrows that overlap lie side by side, short ones nearest to the code.
function lanes(boards) {
  const arrows = boards.map(([setter, waiter, board, left]) => ({ setter, waiter, board, left, low: Math.min(setter, waiter), high: Math.max(setter, waiter) }));
  const busy = [];
  K.lanes = 1;
  for (const arrow of [...arrows].sort((a, b) => a.high - a.low - (b.high - b.low))) {
    let lane = 0;
    const free = (spans) => !spans || spans.every(([low, high, waiter]) => high < arrow.low || low > arrow.high || waiter === arrow.waiter);
    while (lane < BOARD_LANES - 1 && !free(busy[lane] && busy[lane].slice(-64))) lane++;
    (busy[lane] = busy[lane] || []).push([arrow.low, arrow.high, arrow.waiter]);
    arrow.lane = lane;
    K.lanes = Math.max(K.lanes, lane + 1);
  }
  return arrows;
}

function drawTools() {
  const box = (name) =>
    h("label", { title: ALL_COLUMNS[name].title },
      h("input", { type: "checkbox", "data-column": name, checked: !off.has(name), onchange: (event) => {
        if (event.target.checked) off.delete(name); else off.add(name);
        layout();
      } }), name);
  put($("columns"), 
    h("button", { onclick: () => foldAll(true), title: "fold all blocks ( F )" }, "fold"),
    h("button", { onclick: () => foldAll(false), title: "unfold all blocks ( U )" }, "unfold"),
    ...Object.keys(ALL_COLUMNS).filter((name) => shown(name, true)).map(box),
    ...SEVERITIES.map((severity) => {
      const number = K.findings.filter((one) => one.severity === severity).length;
      return number > 0 && h("label", { class: severity }, h("input", { type: "checkbox", "data-column": severity, checked: !off.has(severity),
        onchange: (event) => { if (event.target.checked) off.delete(severity); else off.add(severity); layout(); } }), count(number, severity));
    }).filter(Boolean));
}

const shown = (name, known) => (known || !off.has(name)) && (!ALL_COLUMNS[name].when || ALL_COLUMNS[name].when());

function layout() {
  columns = Object.keys(ALL_COLUMNS).filter((name) => shown(name));
  $("list").style.setProperty("--columns", columns.map((name) => ALL_COLUMNS[name].width()).join(" "));
  const head = columns.flatMap((name) => ALL_COLUMNS[name].heads.map(([kind, text, title]) => h("span", { class: kind, title: title || ALL_COLUMNS[name].title }, text)));
  put($("head"), ...head);
  const life = $("head").querySelector(".life");
  if (life) put(life, ...lifeHeads());
  rows = [];
  rowOf = new Array(K.size);
  K.blocks.forEach(([start, end], number) => {
    rows.push(["block", number]);
    if (folded.has(number)) return rowOf.fill(rows.length - 1, start, end);
    for (let n = start; n < end; n++) {
      rowOf[n] = rows.length;
      rows.push(["code", n]);
      for (const finding of K.findingsAt.get(n) || []) if (!off.has(finding.severity)) rows.push(["finding", finding]);
    }
  });
  drawRows(true);
}

function lifeHeads() {
  const step = 2;
  return K.registers.map((name, number) =>
    number % step ? null : h("b", { style: { left: `${number * CELL}px` }, title: K.names[name] ? `${name} ${K.names[name]}` : name }, name)).filter(Boolean);
}

const rowHeight = () => parseFloat(getComputedStyle($("list")).getPropertyValue("--row"));
let drawn = "";

function drawRows(anew) {
  const list = $("list"), height = rowHeight(), head = $("head").offsetHeight;
  const first = Math.max(0, Math.floor((list.scrollTop - 40) / height) - 10);
  const last = Math.min(rows.length, Math.ceil((list.scrollTop + (list.clientHeight || 600)) / height) + 10);
  const key = `${first} ${last}`;
  if (!anew && key === drawn) return;
  drawn = key;
  const body = $("rows");
  body.style.height = `${rows.length * height}px`;
  const parts = [];
  for (let row = first; row < last; row++) {
    const [what, of] = rows[row];
    const element = what === "code" ? codeRow(of) : what === "block" ? blockRow(of) : findingRow(of);
    element.style.top = `${row * height}px`;
    parts.push(element);
  }
  const cut = visible(first, last);
  if (columns.includes("boards")) parts.push(boardArrows(first, last, height));
  if (columns.includes("life")) parts.push(lifeRanges(cut, first, last, height));
  put(body, ...parts);
  const overlay = body.querySelector(".lives");
  const cell = $("head").querySelector(".life");
  if (overlay && cell) overlay.style.left = `${cell.offsetLeft}px`;
  drawMap();
}

function visible(first, last) {
  const numbers = rows.slice(first, last).filter(([what]) => what === "code").map(([, n]) => n);
  return [numbers.length ? numbers[0] : 0, numbers.length ? numbers[numbers.length - 1] + 1 : 0];
}

function codeRow(n) {
  const cells = columns.flatMap((name) => CELLS[name](n));
  const touched = register && K.touched[n];
  const kind = ["row", "code"];
  if (n === at) kind.push("selected");
  if (hits.length && hitSet.has(n)) kind.push("hit");
  if (touched && touched[0].includes(register)) kind.push("reads");
  if (touched && touched[1].includes(register)) kind.push("writes");
  return h("div", { class: kind.join(" "), "data-n": n, id: `n${n}` }, cells);
}

const share = (name, n) => (K.most[name] && !K.even[name] ? Math.sqrt(K.counters[name][n] / K.most[name]) : 0);
const heated = (kind, value, part, title) =>
  h("span", { class: kind, title, style: part ? { background: `color-mix(in srgb, var(--heat) ${Math.round(70 * part)}%, transparent)` } : {} }, value);

const CELLS = {
  boards: () => [h("span", { class: "boards" })],
  address: (n) => [h("a", { class: "address", href: `#${K.id}/${hex(n)}` }, hex(n))],
  heat: (n) => {
    const { warps, lanes: active, wavefronts, ideal, sectors, requests } = K.counters;
    if (!warps[n]) return heats().map((kind) => h("span", { class: `${kind} never`, title: "it did not run" }));
    const extra = wavefronts[n] - ideal[n], each = active[n] / warps[n], asked = sectors[n] / Math.max(requests[n], 1);
    const cells = {
      warps: () => heated("warps", warps[n], share("warps", n)),
      lanes: () => heated("lanes", each === 32 ? "32" : each.toFixed(1), each < 32 ? 1 - each / 32 : 0, "active lanes"),
      wave: () => heated("wave", wavefronts[n] || "", share("wavefronts", n)),
      extra: () => heated("extra", extra || "", extra ? Math.sqrt(extra / K.most.wavefronts) : 0),
      sectors: () => heated("sectors", sectors[n] ? asked.toFixed(1) : "", share("sectors", n), `${sectors[n]} sectors in ${requests[n]} requests`),
    };
    return heats().map((kind) => cells[kind]());
  },
  control: (n) => [
    h("span", { class: "wait" }, K.wait[n] ? boards(K.wait[n]) : ""),
    h("span", { class: `sb b${K.read[n]}` }, K.read[n] === NONE ? "" : K.read[n]),
    h("span", { class: `sb b${K.write[n]}` }, K.write[n] === NONE ? "" : K.write[n]),
    h("span", { class: "yield" }, K.keep[n] ? "" : "Y"),
    h("span", { class: "stall" }, K.stall[n]),
  ],
  stalls: (n) => [h("span", { class: "cycles", title: `${count(K.stall[n], "cycle")}${K.conflicts[n] ? ` and ${K.conflicts[n]} lost to register banks` : ""}` },
    h("i", { style: { width: `${4 * K.stall[n]}px` } }), K.conflicts[n] && h("i", { class: "lost", style: { width: `${4 * K.conflicts[n]}px` } }))],
  pipe: (n) => [h("span", { class: "pipe", style: { color: pipeColour(K.pipe[n]) } }, K.pipe[n] || "")],
  code: (n) => {
    const target = K.targets[n];
    return [h("span", { class: "code", title: does(n) }, h("code", {}, instruction(n)), target !== undefined && link(target, `→ ${label(target)}`))];
  },
  banks: (n) => [h("span", { class: "banks" }, K.conflicts[n] && h("b", { title: "cycles lost" }, `−${K.conflicts[n]}`),
    K.reused[n] && h("em", { title: "from the reuse cache" }, `=${K.reused[n]}`), K.kept[n] && h("small", { title: "left in the reuse cache" }, `+${K.kept[n]}`))],
  held: (n) => Object.entries(K.held).map(([file, held]) => {
    const [most, where] = K.peaks[file];
    const part = most ? (100 * held[n]) / most : 0;
    return h("span", { class: held[n] === most ? "held most" : "held", title: held[n] === most ? `the most ${file} in use` : null,
      style: { background: `linear-gradient(to right, var(--${file}) ${part}%, transparent ${part}%)` } }, held[n], where === n && h("b", {}, "peak"));
  }),
  source: (n) => {
    const here = sourceOf(n), before = n && sourceOf(n - 1);
    if (!here) return [h("span", { class: "source" })];
    const again = before && before.line === here.line && before.file === here.file;
    const place = `${here.file}:${here.line}`;
    return [h("span", { class: again ? "source again" : "source", title: `${place}: ${here.text}` }, h("b", {}, here.line), again ? "″" : here.text || place)];
  },
  life: () => [h("span", { class: "life" })],
};

function blockRow(number) {
  const [start, end, around, reachable] = K.blocks[number];
  const loop = around.length ? K.loopOf.get(around[around.length - 1]) : null;
  const cycles = K.stall.slice(start, end).reduce((a, b) => a + Math.max(b, 1), 0);
  const closed = folded.has(number);
  return h("div", { class: `row block depth${Math.min(around.length, 3)}`, "data-block": number },
    h("button", { class: "fold", "aria-expanded": String(!closed), onclick: () => fold(number) }, closed ? "▸" : "▾"),
    h("a", { class: "label", href: `#${K.id}/${hex(start)}` }, label(start)),
    h("span", {}, `${count(end - start, "instruction")}, ${count(cycles, "cycle")} of stalls`),
    !reachable && h("em", {}, "nothing leads here"),
    loop && h("a", { href: `#${K.id}/loops/${loop.number}` }, `loop, depth ${loop.depth}`),
    loop && K.blocks[number][0] === loop.start && h("button", { onclick: () => foldLoop(loop) }, "fold loop"));
}

function findingRow(one) {
  return h("div", { class: `row finding ${one.severity}`, title: [one.message, one.hint].filter(Boolean).join("\nhint: "), "data-finding": one.kind,
    style: columns.includes("boards") ? { "padding-left": `${K.lanes * 7 + 24}px` } : {} },
    h("b", {}, one.severity), h("span", { class: "message" }, one.message), one.other !== undefined && link(one.other),
    one.hint && h("span", { class: "hint" }, `hint: ${one.hint}`), h("small", {}, one.kind));
}

function boardArrows(first, last, height) {
  const wide = K.lanes * 7 + 16;
  const picture = s("svg", { class: "arrows", width: wide, height: (last - first) * height, style: { top: `${first * height}px` } });
  // short ones over long ones; the gap around each makes it plain which of two lines that cross is which
  const layers = Array.from({ length: K.lanes }, () => [s("g", { class: "gap" }), s("g", {})]);
  picture.append(...layers.reverse().flat());
  layers.reverse();
  for (const arrow of K.arrows) {
    const from = rowOf[arrow.setter], to = rowOf[arrow.waiter];
    if (Math.max(from, to) < first || Math.min(from, to) >= last || from === to) continue;
    const y = (from - first + 0.62) * height, end = (to - first + 0.42) * height, x = wide - 12 - 7 * arrow.lane;
    const back = arrow.waiter <= arrow.setter;
    const chosen = arrow.setter === at || arrow.waiter === at;
    const d = `M${wide - 2} ${y}H${x}V${end}H${wide - 7}m0 -3l5 3l-5 3z`;
    const [gaps, lines] = layers[arrow.lane];
    gaps.append(s("path", { d }));
    lines.append(s("path", {
      class: `b${arrow.board}${chosen ? " chosen" : ""}`, "data-from": arrow.setter, "data-to": arrow.waiter, "stroke-dasharray": back ? "3 2" : null, d,
    }, s("title", {}, `scoreboard ${arrow.board}: set at 0x${hex(arrow.setter)}, waited for at 0x${hex(arrow.waiter)}${back ? ", a round later" : ""}${arrow.left ? `, but ${arrow.left}` : ""}`)));
  }
  return picture;
}

function lifeRanges([low, high], first, last, height) {
  const picture = s("svg", { class: "lives", width: K.registers.length * CELL + 12, height: (last - first) * height, style: { top: `${first * height}px` } });
  const y = (n) => (rowOf[n] - first) * height;
  K.registers.forEach((name, number) => {
    const x = number * CELL + CELL / 2;
    let path = "";
    for (const [from, behind] of K.life[name]) {
      if (behind <= low || from >= high) continue;
      const start = Math.max(from, low), end = Math.min(behind, high) - 1;
      path += `M${x} ${y(start) + (from < low ? 0 : 2)}V${y(end) + height - (behind > high ? 0 : 2)}`;
    }
    if (path) picture.append(s("path", { d: path, class: `life-${name.replace(/\d/g, "")}${name === register ? " chosen" : ""}`, "data-r": name },
      s("title", {}, K.names[name] ? `${name} ${K.names[name]}` : name)));
  });
  const place = new Map(K.registers.map((name, number) => [name, number * CELL]));
  let read = "", written = "";
  for (let row = first; row < last; row++) {
    const [what, n] = rows[row];
    if (what !== "code") continue;
    for (const name of K.touched[n][0]) read += `M${place.get(name) + 1} ${y(n) + height * 0.3}h${CELL - 2}`;
    for (const name of K.touched[n][1]) written += `M${place.get(name) + 1} ${y(n) + height * 0.7}h${CELL - 2}`;
  }
  picture.append(s("path", { d: read, class: "reads" }), s("path", { d: written, class: "writes" }));
  return picture;
}

// -- folding, going somewhere

function fold(number) {
  if (folded.has(number)) folded.delete(number); else folded.add(number);
  layout();
}
function foldAll(closed) {
  folded = new Set(closed ? K.blocks.keys() : []);
  layout();
}
function foldLoop(loop) {
  const inside = K.blocks.map((block, number) => number).filter((number) => K.blocks[number][2].includes(loop.number));
  const close = inside.some((number) => !folded.has(number));
  for (const number of inside) if (close) folded.add(number); else folded.delete(number);
  layout();
}

function select(n, quiet) {
  at = Math.max(0, Math.min(n, K.size - 1));
  if (folded.delete(K.blockOf[at])) layout();
  const list = $("list"), height = rowHeight(), y = rowOf[at] * height, head = $("head").offsetHeight;
  const sight = list.clientHeight - head;
  if (y < list.scrollTop + height || y + 2 * height > list.scrollTop + sight) list.scrollTop = Math.max(0, y - sight / 3);
  drawRows(true);
  if (!quiet) showDetail();
}

function goTo(n) {
  const hash = `#${K.id}/${hex(n)}`;
  if (location.hash === hash) follow(); else location.hash = hash;
}

// -- search

let hitSet = new Set();
function search(text) {
  const wanted = text.trim().toLowerCase();
  hits = [];
  if (/^(0x|l_)?[0-9a-f]{4,}$/.test(wanted)) {
    const n = parseInt(wanted.replace(/^(0x|l_)/, ""), 16) / WORD;
    if (Number.isInteger(n) && n < K.size) hits = [n];
  } else if (/^[^\s:]*:\d+$/.test(wanted)) {
    const [file, line] = wanted.split(":");
    for (let n = 0; n < K.size; n++) if (K.place[n][1] === Number(line) && baseName(K.files[K.place[n][0]]).toLowerCase().endsWith(file)) hits.push(n);
  } else if (wanted) {
    for (let n = 0; n < K.size; n++) {
      const here = sourceOf(n);
      const names = K.touched[n].flat().map((name) => K.names[name] || "").join(" ");
      if (`${K.text[n]} ${names} ${here ? here.text : ""} ${(K.findingsAt.get(n) || []).map((one) => `${one.kind} ${one.message}`).join(" ")}`.toLowerCase().includes(wanted)) hits.push(n);
    }
  }
  hitSet = new Set(hits);
  $("hits").textContent = wanted ? count(hits.length, "hit") : "";
  drawRows(true);
}
function nextHit(by) {
  if (!hits.length) return;
  const behind = by > 0 ? hits.find((n) => n > at) : [...hits].reverse().find((n) => n < at);
  const n = behind === undefined ? hits[by > 0 ? 0 : hits.length - 1] : behind;
  goTo(n);
  $("hits").textContent = `${hits.indexOf(n) + 1} of ${hits.length}`;
}

// -- beside the listing: the whole kernel, and one instruction

// What does not change with scrolling is drawn once, and copied.
let mapDrawn = null; // { key, canvas }
function drawMap() {
  const map = $("map"), high = map.clientHeight, wide = 36;
  if (!high) return;
  const ratio = window.devicePixelRatio || 1;
  map.width = wide * ratio;
  map.height = high * ratio;
  const key = [K.id, high, ratio, rows.length, [...folded].join(), [...off].join(), resolved("--ink")].join(" ");
  if (!mapDrawn || mapDrawn.key !== key) mapDrawn = { key, canvas: mapOf(wide, high, ratio) };
  const pen = map.getContext("2d"), list = $("list"), height = rowHeight(), scale = high / Math.max(rows.length, 1);
  pen.drawImage(mapDrawn.canvas, 0, 0);
  pen.scale(ratio, ratio);
  pen.strokeStyle = resolved("--ink");
  pen.strokeRect(0.5, (list.scrollTop / height) * scale + 0.5, wide - 1, Math.max(3, (list.clientHeight / height) * scale - 1));
}

function mapOf(wide, high, ratio) {
  const canvas = h("canvas", { width: wide * ratio, height: high * ratio }), pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const scale = high / Math.max(rows.length, 1), held = K.held.R || [], most = (K.peaks.R || [1])[0] || 1;
  const y = (n) => rowOf[n] * scale;
  pen.fillStyle = resolved("--R");
  for (let n = 0; n < K.size; n++) pen.fillRect(0, y(n), (14 * (held[n] || 0)) / most, Math.max(scale, 1));
  if (K.counters.warps) {
    pen.fillStyle = resolved("--heat");
    for (let n = 0; n < K.size; n++) {
      pen.globalAlpha = share("warps", n);
      pen.fillRect(16, y(n), 8, Math.max(scale, 1));
    }
    pen.globalAlpha = 1;
  }
  for (const one of [...K.findings].reverse()) {
    if (off.has(one.severity)) continue;
    pen.fillStyle = resolved(`--${one.severity}`);
    pen.fillRect(27, y(one.n), 7, Math.max(scale, 2));
  }
  return canvas;
}

// A canvas knows neither variables nor light-dark().
const probe = h("span", { hidden: true });
function resolved(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

// Cycles of stalls from one instruction to a later one of its block: the least, since waits take time that is not known.
function distance(from, to) {
  let cycles = 0;
  for (let n = from; n < to; n++) cycles += Math.max(K.stall[n], 1) + (K.conflicts[n] || 0);
  return cycles;
}

function showDetail() {
  const n = at, here = sourceOf(n);
  const line = (name, ...what) => what.flat().some(Boolean) && [h("dt", {}, name), h("dd", {}, ...what)];
  const many = (numbers) => numbers.map((one, place) => [place > 0 && ", ", link(one)]);
  const registers = (found, where) => found.map((name) => h("div", {}, h("span", { class: "reg", "data-r": name }, name, K.names[name] && h("i", { class: "name" }, K.names[name])), where(name)));
  const writer = (name) => { const m = writerOf(name, n); return h("small", {}, " ", m < 0 ? "from before this block" : ["written at ", link(m), `, ${count(distance(m, n), "cycle")} before`]); };
  const readers = (name) => { const found = readersOf(name, n); return found.length > 0 && h("small", {}, " read at ", many(found.slice(0, 4)), found.length > 4 && ", ..."); };
  const waits = [0, 1, 2, 3, 4, 5].map((board) => {
    const from = (K.waitsFor.get(n) || []).filter((one) => one[2] === board).map((one) => one[0]);
    if (!((K.wait[n] >> board) & 1) && !from.length) return null;
    return h("div", {}, h("b", { class: `b${board}` }, `SB${board}`), from.length ? [" set at ", many(from)] : " which nothing has set");
  }).filter(Boolean);
  const sets = [...new Set([K.read[n], K.write[n]])].filter((board) => board !== NONE).map((board) => {
    const by = (K.waitedBy.get(n) || []).filter((one) => one[2] === board).map((one) => one[1]);
    const until = K.write[n] === board ? "results are there" : "sources are read";
    return h("div", {}, h("b", { class: `b${board}` }, `SB${board}`), ` until ${until}; waited for `, by.length ? ["at ", many(by)] : "nowhere");
  });
  const counters = K.counters.warps && ["warps", "lanes", "requests", "wavefronts", "ideal", "sectors"].filter((name) => K.counters[name][n]).map((name) => `${name} ${K.counters[name][n].toLocaleString("en")}`).join(", ");
  const loops = K.blocks[K.blockOf[n]][2].map((number) => K.loopOf.get(number)).filter(Boolean);
  put($("detail"), 
    h("button", { class: "close", title: "close ( Esc )", onclick: () => { $("detail").hidden = true; drawRows(true); } }, "×"),
    h("h2", {}, `0x${hex(n)}`), h("p", { class: "code" }, h("code", {}, instruction(n))), does(n) && h("p", {}, does(n)),
    ...(K.findingsAt.get(n) || []).map((one) => h("div", { class: `box ${one.severity}` }, h("b", {}, `${one.severity}: `), one.message, one.other !== undefined && [" ", link(one.other)], one.hint && h("div", { class: "hint" }, `hint: ${one.hint}`), h("small", {}, one.kind))),
    h("dl", {},
      line("source", here && `${here.file}:${here.line}`, here && here.text && h("pre", {}, here.text)),
      line("waits for", waits), line("sets", sets),
      line("stall", `${count(K.stall[n], "cycle")}${K.keep[n] ? "" : ", yields"}${K.conflicts[n] ? `; ${K.conflicts[n]} lost to register banks` : ""}`),
      line("pipe", K.pipe[n]), line("reads", registers(K.touched[n][0], writer)), line("writes", registers(K.touched[n][1], readers)),
      line("results", K.after[n] === null ? "" : K.after[n] ? `after ${count(K.after[n], "cycle")}` : "at no fixed time: by scoreboard"),
      line("reuse", K.reused[n] && `${K.reused[n]} from the cache `, K.kept[n] && `${K.kept[n]} left there`),
      line("in use", Object.entries(K.held).map(([file, held]) => `${held[n]} ${file}`).join(", ")),
      line("counters", counters), line("leads to", K.targets[n] !== undefined && link(K.targets[n])),
      line("in", loops.map((loop) => h("a", { href: `#${K.id}/loops/${loop.number}` }, `loop 0x${hex(loop.start)} `)))));
  $("detail").hidden = false;
}
