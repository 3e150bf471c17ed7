// The other views: resources, control-flow graph, registers, findings, the run.

function drawFacts() {
  const of = K.resources;
  const tile = (name, value, more, href) => h(href ? "a" : "div", { class: "tile", href: href || null }, h("b", {}, value), h("span", {}, name), more && h("small", {}, more));
  const warps = (of.occupancy || []).map((one) => one.warps);
  const best = warps.length ? of.occupancy[warps.indexOf(Math.max(...warps))] : null;
  const findings = SEVERITIES.map((severity) => [severity, K.findings.filter((one) => one.severity === severity).length]).filter((one) => one[1]);
  put($("facts"), ...[
    tile("architecture", K.arch, K.entry ? "kernel" : "device function"),
    tile("instructions", K.size.toLocaleString("en"), Object.entries(of.mix).slice(0, 3).map(([name, number]) => `${number} ${name}`).join(", "), `#${K.id}/listing`),
    tile("registers a thread", of.registers, "allocated"),
    ...Object.entries(K.peaks).map(([file, [most, where]]) => tile(`${file} in use, at most`, most, `at 0x${hex(where)}`, `#${K.id}/${hex(where)}`)),
    K.entry && tile("shared memory", `${of.shared_bytes.toLocaleString("en")} B`, count(of.barriers, "barrier")),
    K.entry && tile("local memory", `${of.local_bytes.toLocaleString("en")} B`, "a thread"),
    best && tile("warps of an SM", `${best.warps} of ${K.mostWarps}`, `${best.threads} threads, by ${best.limited_by}`),
    tile("loops", K.loops.length, K.loops.length ? `deepest: ${Math.max(...K.loops.map((one) => one.depth))}` : "", `#${K.id}/loops`),
    tile("findings", K.findings.length, findings.map(([severity, number]) => count(number, severity)).join(", "), `#${K.id}/findings`),
    K.run && tile("warp instructions", K.run.instructions.toLocaleString("en"), K.run.error ? "failed" : "ran", `#${K.id}/run`),
  ].filter(Boolean));
}

function drawGraph() {
  const room = $("graph");
  if (!K.graph) return put(room, h("p", { class: "empty" }, `The graph has ${count(K.blocks.length, "block")}: too many to draw.`));
  const box = h("div", { class: "drawing", tabindex: 0 });
  box.innerHTML = K.graph; // our own drawing; names and texts in it are escaped, and the page's policy runs no script in it
  let zoom = 1;
  const picture = box.firstElementChild, wide = picture.width.baseVal.value, high = picture.height.baseVal.value;
  picture.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  const resize = (by) => {
    zoom = Math.max(0.1, Math.min(3, zoom * by));
    picture.setAttribute("width", wide * zoom);
    picture.setAttribute("height", high * zoom);
  };
  box.addEventListener("click", (event) => {
    const block = event.target.closest("[data-block]");
    if (block) goTo(K.blocks[Number(block.dataset.block)][0]);
  });
  put(room, 
    h("div", { class: "tools" }, h("button", { onclick: () => resize(1.25) }, "+"), h("button", { onclick: () => resize(0.8) }, "−"),
      h("button", { onclick: () => resize(Math.min(1, box.clientWidth / wide) / zoom) }, "fit"),
      h("span", {}, "Loops stand to the right, darker with their depth. Solid: a branch, or what comes next; dashed: a call; dotted: an indirect branch. A click goes to the listing.")), box);
  resize(Math.min(1, box.clientWidth / wide));
}

function drawRegisters() {
  const room = $("registers"), { left, wide } = lifeAxis(room), high = 180;
  const held = Object.entries(K.held), top = Math.max(1, ...held.map(([file]) => K.peaks[file][0]));
  const chart = s("svg", { class: "pressure", width: left + wide, height: high + 34, viewBox: `${-left} -24 ${left + wide} ${high + 34}`, role: "img" });
  for (let part = 0; part <= 4; part++) {
    const y = high - (high * part) / 4;
    chart.append(s("path", { class: "ruler", d: `M0 ${y}H${wide}` }), s("text", { class: "tick", x: -6, y: y + 4, "text-anchor": "end" }, Math.round((top * part) / 4)));
  }
  for (const [file, values] of held) {
    const buckets = Math.min(values.length, wide);
    let path = "";
    for (let bucket = 0; bucket < buckets; bucket++) {
      const from = Math.floor((bucket * values.length) / buckets), to = Math.max(from + 1, Math.floor(((bucket + 1) * values.length) / buckets));
      let most = 0;
      for (let n = from; n < to; n++) most = Math.max(most, values[n]);
      path += `${bucket ? "L" : "M"}${((bucket * wide) / buckets).toFixed(1)} ${(high - (high * most) / top).toFixed(1)}H${(((bucket + 1) * wide) / buckets).toFixed(1)}`;
    }
    chart.append(s("path", { class: `held-${file}`, d: path, "data-file": file }, s("title", {}, `${file} in use`)));
    const [most, where] = K.peaks[file], x = ((where + 0.5) * wide) / values.length, y = high - (high * most) / top;
    chart.append(s("a", { href: `#${K.id}/${hex(where)}`, class: "peak" }, s("circle", { cx: x, cy: y, r: 4, class: `held-${file}` }),
      s("text", { x: x > wide * 0.75 ? x - 7 : x + 7, y: y - 7, "text-anchor": x > wide * 0.75 ? "end" : "start", class: `held-${file}` }, `${most} ${file} at 0x${hex(where)}`)));
  }
  const canvas = h("canvas", { class: "lifemap", title: "life ranges of all registers; click to go there" });
  const names = Object.entries(K.names);
  put(room, h("h2", {}, "Registers in use, by address"), chart, h("h2", {}, "Life ranges"), canvas,
    names.length > 0 && [h("h2", {}, "The author's names"), h("div", { class: "names" }, names.map(([of, name]) =>
      h("span", { class: "reg", "data-r": of }, of, h("i", { class: "name" }, name))))]);
  paintLives(canvas);
}

// The axis of addresses that the chart and the life ranges share, in pixels.
function lifeAxis(room) {
  const left = Object.keys(K.names).length ? 120 : 44;
  return { left, wide: Math.max(240, room.clientWidth - 40 - left) };
}

function paintLives(canvas) {
  const line = 9, { left, wide } = lifeAxis($("registers")), ratio = window.devicePixelRatio || 1;
  const high = K.registers.length * line + 4;
  canvas.style.width = `${left + wide}px`;
  canvas.style.height = `${high}px`;
  canvas.width = (left + wide) * ratio;
  canvas.height = high * ratio;
  const pen = canvas.getContext("2d"), scale = wide / K.size;
  pen.scale(ratio, ratio);
  pen.font = "8px ui-monospace, monospace";
  K.registers.forEach((name, number) => {
    const y = number * line + 2;
    pen.fillStyle = resolved("--ink");
    pen.fillText(`${name} ${K.names[name] || ""}`.slice(0, 24), 2, y + 7);
    pen.fillStyle = resolved(`--life-${name.replace(/\d/g, "")}`);
    for (const [from, behind] of K.life[name]) pen.fillRect(left + from * scale, y + 1, Math.max(1, (behind - from) * scale), line - 3);
  });
  canvas.onclick = (event) => goTo(Math.max(0, Math.min(K.size - 1, Math.floor((event.offsetX - left) / scale))));
}

function drawFindings() {
  const room = $("findings");
  if (!K.findings.length) return put(room, h("p", { class: "empty" }, "The linter has nothing to say."));
  put(room, h("div", { class: "wide" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "where", "what", "source"].map((name) => h("th", {}, name)))),
    h("tbody", {}, K.findings.slice(0, 2000).map((one) => {
      const here = sourceOf(one.n);
      return h("tr", { class: one.severity }, h("td", {}, h("b", {}, one.severity)), h("td", {}, link(one.n), one.other !== undefined && [" ", link(one.other)]),
        h("td", {}, one.message, " ", h("small", {}, one.kind), one.hint && h("div", { class: "hint" }, `hint: ${one.hint}`)), h("td", {}, here && `${baseName(here.file)}:${here.line}`));
    })))), K.findings.length > 2000 && h("p", {}, `and ${K.findings.length - 2000} more: in the listing`));
}

function drawRun() {
  const room = $("run"), run = K.run;
  if (!run) return put(room);
  const of = run.counters, parts = [];
  parts.push(h("p", { class: "about" }, "Run on the CPU device: ", h("code", {}, run.given), ". It counts and knows no time."));
  if (run.error) parts.push(h("pre", { class: "box error" }, run.error));
  if (run.lines.length) parts.push(h("pre", {}, run.lines.join("\n")));
  if (of.warps) {
    const hot = [...K.text.keys()].filter((n) => of.warps[n]);
    const table = (title, value, shown) => {
      const found = hot.filter((n) => value(n) > 0).sort((a, b) => value(b) - value(a)).slice(0, 12);
      if (!found.length) return null;
      return h("section", { class: "card" }, h("h2", {}, title), h("table", {}, h("tbody", {}, found.map((n) =>
        h("tr", {}, h("td", {}, link(n)), h("td", { class: "number" }, shown(n)), h("td", { class: "code" }, h("code", {}, instruction(n))))))));
    };
    const conflicts = (n) => of.wavefronts[n] - of.ideal[n];
    parts.push(roofline(run.roofline), h("div", { class: "cards" },
      table("Most often", (n) => of.warps[n], (n) => `${of.warps[n].toLocaleString("en")} warps`),
      table("Idle lanes", (n) => 32 * of.warps[n] - of.lanes[n], (n) => `${(of.lanes[n] / of.warps[n]).toFixed(1)} of 32`),
      table("Conflicts of shared memory", conflicts, (n) => `${conflicts(n).toLocaleString("en")} of ${of.wavefronts[n].toLocaleString("en")} wavefronts`),
      table("Sectors of global memory", (n) => of.sectors[n], (n) => `${of.sectors[n].toLocaleString("en")}, ${(of.sectors[n] / of.requests[n]).toFixed(1)} a request`)));
  }
  put(room, ...parts.filter(Boolean));
}

function roofline(of) {
  if (!of) return null;
  const most = Math.max(...Object.values(of.cycles), 1), whole = (number) => Math.round(number).toLocaleString("en");
  const bars = Object.entries(of.cycles).map(([name, cycles]) => h("div", { class: cycles === most ? "bar full" : "bar" }, h("span", {}, name),
    h("i", { style: { width: `${(60 * cycles) / most}%`, background: PIPES.includes(name) ? pipeColour(name) : null } }), h("span", {}, whole(cycles))));
  const bytes = Object.entries(of.bytes).filter(([, size]) => size).map(([what, size]) => `${whole(size)} bytes of ${what} memory (${(of.flops / size).toFixed(2)} operations a byte)`);
  const box = h("div", { class: "roofline" });
  box.innerHTML = of.svg;
  return h("section", { class: "cards" },
    h("section", { class: "card" }, h("h2", {}, "Cycles of an SM, if one ran it all"), h("div", { class: "bars" }, bars),
      h("p", {}, `${whole(of.flops)} floating-point operations`, bytes.length > 0 && `, ${bytes.join(", ")}`, of.flops > 0 && `; by these counts at most ${of.most.toFixed(1)} operations of an SM and cycle.`)),
    h("section", { class: "card" }, h("h2", {}, "Roofline"), of.svg ? box : h("p", { class: "empty" }, of.flops ? "pip install matplotlib, and make the page again, to see it drawn" : "It does no floating-point arithmetic."),
      h("p", { class: "about" }, of.ceilings ? ["Bytes a cycle of an ", of.ceilings.gpu, ": ", h("code", {}, of.ceilings.source), ". "] : "Of this architecture's memories nothing was measured. ",
        "The point is as high as the counts allow, not what was reached.")));
}
