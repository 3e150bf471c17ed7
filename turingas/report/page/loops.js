// Loops: what bounds an iteration, and when each instruction of it issues.

const LANE = 20;

function drawLoops() {
  const room = $("loops");
  if (!K.loops.length) return put(room, h("p", { class: "empty" }, "There are no loops."));
  const first = [...K.loops].sort((a, b) => b.depth - a.depth || b.alone - a.alone)[0];
  put(room, 
    h("p", { class: "about" }, "Cycles of one warp and one iteration, inner loops left out. How long a wait for a scoreboard takes is not known: all numbers are lower bounds. ",
      "A bar is the time for which an instruction keeps its pipe; below, from where a scoreboard is set to where it is waited for."),
    ...K.loops.map((loop) => loopCard(loop, loop === first)));
}

function loopCard(loop, open) {
  const busiest = Math.max(loop.alone, ...Object.values(loop.bounds));
  const bars = Object.entries(loop.bounds).sort((a, b) => b[1] - a[1]).filter(([, cycles]) => cycles > 0).map(([name, cycles]) =>
    h("div", { class: name === loop.bound ? "bar full" : "bar" }, h("span", {}, name),
      h("i", { style: { width: `${(60 * cycles) / busiest}%`, background: PIPES.includes(name) ? pipeColour(name) : null } }),
      h("span", {}, `${cycles.toLocaleString("en")} (${Math.round((100 * cycles) / Math.max(loop.least, 1))} %)${name === loop.bound ? ", full when warps are enough" : ""}`)));
  const [from, to] = loop.lines;
  const box = h("div", { class: "timeline", tabindex: 0, "aria-label": "issue timeline" });
  const said = h("output", { class: "said" }, "Point at a bar to read what it is; a click goes to the listing.");
  const read = (event) => {
    const title = event.target.closest && event.target.closest("rect, path, a");
    const text = title && title.querySelector("title");
    if (text) said.textContent = text.textContent.replaceAll("\n", "  ·  ");
  };
  box.addEventListener("pointerover", read);
  box.addEventListener("focusin", read);
  const card = h("details", { class: "loop", id: `loop${loop.number}`, open, ontoggle: () => { if (card.open && !box.firstChild) box.append(...timeline(loop)); } },
    h("summary", {}, h("b", {}, `loop 0x${hex(loop.start)} to 0x${hex(loop.end - 1)}`), ` depth ${loop.depth}, ${count(loop.instructions, "instruction")}, ${count(loop.alone, "cycle")}`,
      from > 0 && `, ${loop.file.split("/").pop()}:${from}${to > from ? `–${to}` : ""}`, " ", link(loop.start, "in the listing")),
    h("p", {}, `One warp alone: ${count(loop.alone, "cycle")}, ${loop.stalls} of stalls and ${loop.conflicts} of bank conflicts; ${count(loop.waits, "wait")}, ${count(loop.yields, "yield")}. `,
      `Many warps: ${count(loop.least, "cycle")} each, bound by ${loop.bound}; ${loop.warps === 1 ? "1 warp a scheduler is enough" : `${loop.warps} warps a scheduler fill the stalls`}. `,
      `${(100 * loop.share).toFixed(1)} % ${loop.math}.`),
    h("div", { class: "bars" }, bars), box, said);
  return card;
}

function timeline(loop) {
  const cycles = Math.max(loop.alone, ...loop.issues.map((one) => one[1] + one[5]));
  const cell = Math.max(3, Math.min(14, 6000 / cycles)), left = 4, top = 22;
  const pipes = [...new Set(loop.issues.map((one) => one[4]))].sort((a, b) => loop.bounds[b] - loop.bounds[a]);
  const cycleOf = new Map(loop.issues.map((one) => [one[0], one[1]]));
  const waits = K.boards.filter(([setter, waiter]) => cycleOf.has(setter) && cycleOf.has(waiter));
  const boards = [...new Set(waits.map((one) => one[2]))].sort();
  const lanes = ["issue", ...pipes, ...boards.map((board) => `SB${board}`)];
  const wide = left + cycles * cell + 20, high = top + lanes.length * LANE + 8;
  const picture = s("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, role: "img" });
  const names = s("svg", { class: "names", width: 92, height: high, viewBox: `0 0 92 ${high}` }); // stay where they are
  const x = (cycle) => left + cycle * cell;
  const y = (lane) => top + lanes.indexOf(lane) * LANE;
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => one * cell >= 40) || 1000;
  let ruler = "";
  for (let cycle = 0; cycle <= cycles; cycle += step) {
    ruler += `M${x(cycle)} ${top - 4}V${high - 8}`;
    picture.append(s("text", { x: x(cycle), y: 12, class: "tick" }, cycle));
  }
  picture.append(s("path", { d: ruler, class: "ruler" }));
  for (const lane of lanes) {
    const busy = loop.bounds[lane];
    names.append(s("text", { x: 4, y: y(lane) + 14, class: lane === loop.bound ? "lane full" : "lane" }, lane === "issue" || busy === undefined ? lane : `${lane} ${Math.round((100 * busy) / loop.alone)} %`));
  }
  const bar = (n, lane, from, width, attributes, title) =>
    s("a", { href: `#${K.id}/${hex(n)}` }, s("rect", { x: x(from), y: y(lane) + 3, width: Math.max(width * cell - (cell > 4 ? 1 : 0.3), 1), height: LANE - 6, ...attributes }, s("title", {}, title)));
  for (const [n, cycle, stall, conflict, pipe, busy] of loop.issues) {
    const title = `0x${hex(n)} ${K.text[n]}\ncycle ${cycle}, stall ${stall}${conflict ? `, ${conflict} lost to register banks` : ""}`;
    if (stall + conflict > 1) picture.append(s("rect", { class: "wait", x: x(cycle + 1), y: y("issue") + 7, width: (stall - 1) * cell, height: LANE - 14 }, s("title", {}, title)));
    if (conflict) picture.append(s("rect", { class: "lost", x: x(cycle + stall), y: y("issue") + 5, width: conflict * cell, height: LANE - 10 }, s("title", {}, title)));
    picture.append(bar(n, "issue", cycle, 1, { class: "issue", "data-n": n }, title));
    picture.append(bar(n, pipe, cycle, busy, { fill: pipeColour(pipe), "data-pipe": pipe }, `${title}\n${pipe} for ${count(busy, "cycle")}`));
    if (K.wait[n]) picture.append(s("path", { class: "waits", d: `M${x(cycle)} ${y("issue") - 3}l3.5 5h-7z` }, s("title", {}, `${title}\nwaits for ${boardsOf(K.wait[n])}`)));
  }
  for (const [setter, waiter, board] of waits) {
    const from = cycleOf.get(setter), to = cycleOf.get(waiter), lane = `SB${board}`;
    const title = `scoreboard ${board}: set at 0x${hex(setter)}, waited for at 0x${hex(waiter)}${to <= from ? ", an iteration later" : ""}`;
    const spans = to > from ? [[from, to]] : [[from, loop.alone], [0, to]];
    for (const [one, other] of spans) if (other > one) picture.append(bar(setter, lane, one, other - one, { class: `board b${board}` }, title));
  }
  return [names, picture];
}
