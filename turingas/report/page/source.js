// The source, line by line: what became of each line, what it costs, and its instructions under it.

const LINES_SHOWN = 4000; // of a file
const INLINE = 100; // instructions under a line

const COSTS = {
  instructions: { head: "instr.", title: "instructions made of it" },
  cycles: { head: "cycles", title: "cycles of stalls of one warp that runs each of them once; with a run, of all warps" },
  registers: { head: "R", title: "general registers in use, at most" },
  warps: { head: "warps", title: "warp instructions that ran", run: true },
  lanes: { head: "lanes", title: "active lanes, on average; heat: lanes that were idle", run: true },
  wavefronts: { head: "wavefr.", title: "wavefronts of shared memory", run: true },
  conflicts: { head: "confl.", title: "wavefronts that bank conflicts added", run: true },
  sectors: { head: "sectors", title: "32-byte sectors of global memory", run: true },
};

const PHONE_COSTS = ["cycles", "lanes", "conflicts"];

// Costs of each line that has code, and its instructions: file -> line -> costs
function costs() {
  const files = K.files.map(() => new Map()), of = K.counters;
  for (let n = 0; n < K.size; n++) {
    const [file, line] = K.place[n];
    if (!line) continue;
    let one = files[file].get(line);
    if (!one) files[file].set(line, (one = { at: [], instructions: 0, cycles: 0, registers: 0, warps: 0, active: 0, wavefronts: 0, conflicts: 0, sectors: 0, findings: [] }));
    one.at.push(n);
    one.instructions++;
    one.cycles += (Math.max(K.stall[n], 1) + (K.conflicts[n] || 0)) * (of.warps ? of.warps[n] : 1);
    one.registers = Math.max(one.registers, (K.held.R || [])[n] || 0);
    one.findings.push(...(K.findingsAt.get(n) || []).filter((finding) => finding.severity !== "note"));
    if (!of.warps) continue;
    one.warps += of.warps[n];
    one.active += of.lanes[n];
    one.wavefronts += of.wavefronts[n];
    one.conflicts += of.wavefronts[n] - of.ideal[n];
    one.sectors += of.sectors[n];
  }
  for (const lines of files) for (const one of lines.values()) one.lanes = one.warps ? one.active / one.warps : 32;
  return files;
}

function drawSource() {
  const files = costs(), every = files.flatMap((lines) => [...lines.values()]);
  const kinds = (narrow() ? PHONE_COSTS : Object.keys(COSTS)).filter((kind) => every.some((one) => (kind === "lanes" ? one.warps : one[kind])));
  const most = Object.fromEntries(kinds.map((kind) => [kind, Math.max(...every.map((one) => one[kind]))]));
  put($("source"),
    h("p", { class: "about" }, "Lines that code comes from, and what is near them. A click on a line shows its instructions. ",
      K.counters.warps ? "Cycles are stalls times the warps that ran them: waits take time that is not known." : "Cycles are stalls, as if each instruction ran once."),
    files.map((lines, file) => fileOf(file, lines, kinds, most)));
}

function fileOf(file, costsOf, kinds, most) {
  const known = K.lines[file], numbers = [...new Set([...Object.keys(known).map(Number), ...costsOf.keys()])].sort((a, b) => a - b);
  const body = h("tbody", {});
  numbers.slice(0, LINES_SHOWN).forEach((line, place) => {
    if (place && numbers[place - 1] < line - 1) body.append(h("tr", { class: "gap" }, h("td", { colspan: kinds.length + 2 }, "⋯")));
    const one = costsOf.get(line);
    const text = known[line] === undefined ? "" : known[line];
    const number = h("td", { class: "line" }, line);
    const code = h("td", { class: "text" }, one && h("span", { class: "more" }, "▸"), text || (one && !Object.keys(known).length ? "the file was not found" : ""),
      one && one.findings.map((finding) => h("span", { class: `mark ${finding.severity}`, title: finding.message }, ` ${finding.kind}`)));
    const row = h("tr", { class: one ? "has" : "none", "data-line": one ? line : null, tabindex: one ? 0 : null }, kinds.map((kind) => cost(kind, one, most[kind])), number, code);
    if (one) {
      const toggle = () => {
        const under = row.nextElementSibling;
        row.classList.toggle("open");
        if (under && under.classList.contains("under")) under.remove();
        else row.after(h("tr", { class: "under" }, h("td", { colspan: kinds.length + 2 }, instructionsOf(file, line, one))));
      };
      row.addEventListener("click", () => { if (!String(getSelection())) toggle(); });
      row.addEventListener("keydown", (event) => { if (event.key === "Enter") toggle(); });
    }
    body.append(row);
  });
  return [h("h2", { class: "file" }, K.files[file]),
    h("div", { class: "wide" }, h("table", { class: "lines" },
      h("thead", {}, h("tr", {}, kinds.map((kind) => h("th", { title: COSTS[kind].title }, COSTS[kind].head)), h("th", { class: "line" }, "line"), h("th", {}, "source"))), body)),
    numbers.length > LINES_SHOWN && h("p", {}, `and ${numbers.length - LINES_SHOWN} more lines`)];
}

function cost(kind, one, most) {
  if (!one || (COSTS[kind].run && !one.warps)) return h("td", { class: one ? "number never" : "number" });
  const value = one[kind], part = kind === "lanes" ? 1 - value / 32 : kind === "registers" ? 0 : Math.sqrt(value / (most || 1));
  const shown = kind === "lanes" ? (value === 32 ? "32" : value.toFixed(1)) : value ? value.toLocaleString("en") : "";
  return h("td", { class: "number", style: part > 0 ? { background: `color-mix(in srgb, var(--heat) ${Math.round(60 * part)}%, transparent)` } : {} }, shown);
}

function instructionsOf(file, line, one) {
  const rows = one.at.slice(0, INLINE).map((n) => h("div", {}, link(n, hex(n)),
    h("span", { class: "wait" }, boards(K.wait[n])), h("span", { class: "stall" }, K.stall[n]), K.counters.warps && h("span", { class: "warps" }, K.counters.warps[n].toLocaleString("en")),
    h("code", { title: does(n) }, instruction(n))));
  const all = h("a", { href: `#${K.id}/${hex(one.at[0])}`, onclick: () => find(`${baseName(K.files[file])}:${line}`) }, "all of them in the listing");
  return h("div", { class: "inline" }, rows, h("p", {}, one.at.length > INLINE && `and ${one.at.length - INLINE} more; `, all));
}

// Mark what a search finds, and have n and N go through it.
function find(text) {
  $("search").value = text;
  search(text);
}
