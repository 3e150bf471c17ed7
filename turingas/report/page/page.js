// What holds it together: kernels, tabs, links, keys.

const TABS = {
  listing: [() => $("list").focus({ preventScroll: true }), () => true], source: [drawSource, () => K.files.length > 0],
  loops: [drawLoops, () => true], graph: [drawGraph, () => true],
  registers: [drawRegisters, () => true], findings: [drawFindings, () => true], run: [drawRun, () => K.run],
};
let tab = "listing";
let done = new Set(); // tabs that are drawn for this kernel

function show(id) {
  K = load(id);
  done = new Set(["listing"]);
  at = 0;
  hits = [];
  $("kernel").value = id;
  $("detail").hidden = true;
  $("search").value = $("hits").textContent = "";
  drawFacts();
  prepareList();
  $("list").scrollTop = 0;
}

function open(name) {
  tab = TABS[name] && TABS[name][1]() ? name : "listing";
  put($("tabs"), tabs().map((one, number) =>
    h("a", { role: "tab", href: `#${K.id}/${one}`, "aria-selected": String(one === tab), "aria-controls": one, title: `( ${number + 1} )` }, one)));
  for (const one of Object.keys(TABS)) $(one).hidden = one !== tab;
  if (!done.has(tab)) {
    done.add(tab);
    TABS[tab][0]();
  }
  if (tab === "listing") drawRows(true);
}

// #KERNEL/ADDRESS, #KERNEL/TAB, #KERNEL/loops/NUMBER
function follow() {
  const [id, what, more] = location.hash.slice(1).split("/");
  const wanted = Number(id) in INDEX ? Number(id) : 0;
  if (!K || K.id !== wanted) show(wanted);
  if (/^[0-9a-f]{4,}$/.test(what || "")) {
    open("listing");
    select(parseInt(what, 16) / WORD | 0);
  } else open(what || "listing");
  if (tab === "loops" && more) {
    const card = $(`loop${more}`);
    if (card) {
      card.open = true;
      card.scrollIntoView();
    }
  }
}

function theme() {
  const order = ["", "light", "dark"];
  const root = document.documentElement;
  set(order[(order.indexOf(root.dataset.theme || "") + 1) % order.length]);
  function set(name) {
    root.dataset.theme = name;
    try { localStorage.setItem("turingas-theme", name); } catch { /* a page from a file may keep nothing */ }
  }
  $("theme").textContent = root.dataset.theme || "theme";
  redraw();
}

function redraw() {
  drawRows(true);
  done = new Set(["listing"]);
  open(tab);
}

function near(numbers, by) {
  const found = by > 0 ? numbers.find((n) => n > at) : [...numbers].reverse().find((n) => n < at);
  if (found !== undefined) goTo(found);
}
const sorted = (numbers) => [...new Set(numbers)].sort((a, b) => a - b);
const KEYS = {
  j: ["next instruction", () => goTo(Math.min(at + 1, K.size - 1))],
  k: ["the one before", () => goTo(Math.max(at - 1, 0))],
  g: ["first instruction", () => goTo(0)],
  G: ["last instruction", () => goTo(K.size - 1)],
  w: ["who waits for this one's scoreboard", () => { const found = K.waitedBy.get(at); if (found) goTo(found[0][1]); }],
  s: ["who set what this one waits for", () => { const found = K.waitsFor.get(at); if (found) goTo(found[0][0]); }],
  "]": ["next finding", () => near(sorted(K.findings.filter((one) => !off.has(one.severity)).map((one) => one.n)), 1)],
  "[": ["finding before", () => near(sorted(K.findings.filter((one) => !off.has(one.severity)).map((one) => one.n)), -1)],
  l: ["next loop", () => near(sorted(K.loops.map((loop) => loop.start)), 1)],
  p: ["where most registers are in use", () => K.peaks.R && goTo(K.peaks.R[1])],
  f: ["fold the block", () => fold(K.blockOf[at])],
  F: ["fold all", () => foldAll(true)],
  U: ["unfold all", () => foldAll(false)],
  "/": ["search; Enter, n: next; N: before", () => $("search").focus()],
  n: ["", () => nextHit(1)],
  N: ["", () => nextHit(-1)],
  t: ["light, dark, or as the system", theme],
  "?": ["these keys", () => $("keys").showModal()],
};
const tabs = () => Object.keys(TABS).filter((one) => TABS[one][1]());
for (let number = 1; number <= Object.keys(TABS).length; number++)
  KEYS[number] = ["", () => { const name = tabs()[number - 1]; if (name) location.hash = `#${K.id}/${name}`; }];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input[type=search], select");
  if (event.key === "Escape") {
    $("search").blur();
    $("detail").hidden = true;
    drawRows(true);
  } else if (typing && event.key === "Enter") nextHit(event.shiftKey ? -1 : 1);
  else if (!typing) {
    const key = { ArrowDown: "j", ArrowUp: "k", Home: "g", End: "G" }[event.key] || event.key;
    if (!KEYS[key] || (key !== event.key && tab !== "listing")) return;
    event.preventDefault();
    KEYS[key][1]();
  }
});

// Links within the page. In a view of VS Code the browser would not follow them.
document.addEventListener("click", (event) => {
  const to = event.target.closest("a");
  const hash = to && to.getAttribute("href");
  if (!hash || !hash.startsWith("#") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (location.hash === hash) follow(); else location.hash = hash;
}, true);

document.addEventListener("click", (event) => {
  const one = event.target.closest("[data-r]");
  const row = event.target.closest("#rows .row.code");
  if (one && one.dataset.r) {
    register = register === one.dataset.r ? "" : one.dataset.r;
    drawRows(true);
  } else if (row && !event.target.closest("a, button") && !String(getSelection())) goTo(Number(row.dataset.n));
});

$("kernel").append(...INDEX.map((one, id) => h("option", { value: id }, INDEX.some((other) => other.file !== one.file) ? `${one.name} (${baseName(one.file)})` : one.name)));
if (INDEX.length < 2) $("kernel").closest("label").hidden = true;
$("kernel").addEventListener("change", (event) => { location.hash = `#${event.target.value}/listing`; });
$("search").addEventListener("input", (event) => search(event.target.value));
$("theme").addEventListener("click", theme);
$("help").addEventListener("click", () => $("keys").showModal());
$("list").addEventListener("scroll", () => requestAnimationFrame(() => drawRows(false)), { passive: true });
// The arrows of the row under the pointer.
$("rows").addEventListener("pointerover", (event) => {
  const row = event.target.closest(".row.code");
  for (const path of document.querySelectorAll(".arrows [data-from]"))
    path.classList.toggle("pointed", row !== null && (path.dataset.from === row.dataset.n || path.dataset.to === row.dataset.n));
});
$("map").addEventListener("click", (event) => {
  const row = rows[Math.min(rows.length - 1, Math.floor((event.offsetY / $("map").clientHeight) * rows.length))];
  if (row) goTo(row[0] === "code" ? row[1] : row[0] === "block" ? K.blocks[row[1]][0] : row[1].n);
});
$("keys").append(h("form", { method: "dialog" }, h("button", { class: "close" }, "×")), h("h2", {}, "Keys"),
  h("dl", {}, h("dt", {}, h("kbd", {}, "1"), " ... "), h("dd", {}, "the views: 1 is the listing"), Object.entries(KEYS).filter(([, [what]]) => what).map(([key, [what]]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)])));
window.addEventListener("resize", () => { layout(); if (tab === "registers") drawRegisters(); });
window.addEventListener("hashchange", follow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
if (narrow()) PHONE_OFF.forEach((name) => off.add(name));
try { document.documentElement.dataset.theme = localStorage.getItem("turingas-theme") || ""; } catch { /* see above */ }
follow();
document.body.dataset.ready = "yes";
