"use strict";
// What all views share: elements, the kernel that is shown, what follows from its facts.

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const WORD = 16; // bytes of an instruction
const NONE = 7; // no scoreboard
const SEVERITIES = ["error", "warning", "note"];
const INDEX = JSON.parse($("index").textContent);

// Texts go in as text nodes or attributes: names and comments are anybody's.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity))
    if (child !== undefined && child !== null && child !== false) element.append(child);
  return element;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function put(element, ...children) {
  element.replaceChildren();
  return fill(element, {}, children);
}

const hex = (n) => (WORD * n).toString(16).padStart(4, "0");
const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;
const label = (n) => `L_${hex(n)}`;
const link = (n, text) => h("a", { href: `#${K.id}/${hex(n)}`, class: "to" }, text || `0x${hex(n)}`);

let K; // the kernel that is shown: its facts, and what `derive` adds

function load(id) {
  const kernel = JSON.parse($(`kernel${id}`).textContent);
  kernel.id = id;
  return derive(kernel);
}

function derive(k) {
  k.size = k.text.length;
  k.blockAt = new Map(k.blocks.map((block, number) => [block[0], number]));
  k.blockOf = new Array(k.size);
  k.blocks.forEach(([start, end], number) => k.blockOf.fill(number, start, end));
  k.findingsAt = new Map();
  for (const finding of k.findings) push(k.findingsAt, finding.n, finding);
  k.findings.sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity) || a.n - b.n);
  k.waitsFor = new Map();
  k.waitedBy = new Map();
  for (const wait of k.boards) {
    push(k.waitsFor, wait[1], wait);
    push(k.waitedBy, wait[0], wait);
  }
  k.counters = (k.run && k.run.counters) || {};
  k.most = {};
  for (const [name, values] of Object.entries(k.counters)) k.most[name] = values.reduce((a, b) => Math.max(a, b), 0);
  k.even = {}; // counters that are the same wherever the kernel was: no heat
  for (const [name, values] of Object.entries(k.counters)) k.even[name] = values.every((value, n) => !k.counters.warps[n] || value === k.most[name]);
  k.loopOf = new Map(k.loops.map((loop) => [loop.number, loop]));
  return k;
}

function push(map, key, value) {
  const found = map.get(key);
  if (found) found.push(value);
  else map.set(key, [value]);
}

// The instruction in pieces: [class, text, register]
const TOKEN = /(@!?U?P[\dT])|\b(U?R\d+|U?P\d|UR?P?Z|U?PT|RZ)\b|\b(0x[0-9a-f]+)\b|([A-Z][A-Z0-9_.]+)|./gs;

function tokens(text) {
  const found = [];
  let first = true;
  for (const [whole, guard, register, number, word] of text.matchAll(TOKEN)) {
    const what = guard ? "guard" : register ? "reg" : number ? "num" : word ? (first ? "op" : "mod") : "";
    if (word) first = false;
    const last = found[found.length - 1];
    if (!what && last && !last[0]) last[1] += whole;
    else found.push([what, whole]);
  }
  return found;
}

function instruction(n, plain) {
  return tokens(K.text[n]).map(([what, text]) => {
    if (!what) return text;
    const register = what === "reg" ? text : what === "guard" ? text.replace(/[@!]/g, "") : "";
    const name = register && !plain && K.names[register];
    return h("span", { class: what, "data-r": register || null }, text, name && h("i", { class: "name" }, name));
  });
}

function boardsOf(mask) {
  let text = "";
  for (let board = 0; board < 6; board++) text += (mask >> board) & 1 ? board : "·";
  return text;
}
const boards = (mask) => [...boardsOf(mask)].map((one) => (one === "·" ? one : h("b", { class: `b${one}` }, one)));

// What a mnemonic does, by the table of instructions.
const mnemonic = (n) => (K.text[n].match(/^(?:@\S+\s+)?([A-Z][A-Z0-9_]*)/) || [])[1];
const does = (n) => K.does[mnemonic(n)] || "";

// Who last wrote a register before an instruction, and who next reads it, in the block; -1: none there.
function writerOf(name, n) {
  for (let m = n - 1; m >= K.blocks[K.blockOf[n]][0]; m--) if (K.touched[m][1].includes(name)) return m;
  return -1;
}
function readersOf(name, n) {
  const found = [];
  for (let m = n + 1; m < K.blocks[K.blockOf[n]][1]; m++) {
    if (K.touched[m][0].includes(name)) found.push(m);
    if (K.touched[m][1].includes(name)) break;
  }
  return found;
}

const baseName = (file) => file.split("/").pop();
function sourceOf(n) {
  const [file, line] = K.place[n];
  if (!line) return null;
  return { file: K.files[file], line, text: (K.lines[file][line] || "").trim() };
}

// Pipes have a colour each, everywhere the same.
const PIPES = ["fma", "alu", "half", "fp64", "tensor", "xu", "lsu", "tex", "uniform", "branch", "constant", "special", "copy"];
function pipeColour(pipe) {
  const number = PIPES.indexOf(pipe === "wgmma" ? "tensor" : pipe);
  const hue = (number * 360) / PIPES.length + 205;
  return number < 0 ? "var(--dim)" : `light-dark(hsl(${hue} 55% 42%), hsl(${hue} 55% 66%))`;
}
