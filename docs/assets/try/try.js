// The page to try kernels on: an editor, and what turingas says of the source (worker.js, playground.py).
// Whatever stands in a source is put into the page as text, never as HTML.
"use strict";
(() => {
  const part = (name) => document.getElementById(`try-${name}`);
  const root = document.getElementById("try");
  const here = new URL(document.currentScript.src);
  const PAUSE = 300; // milliseconds after the last key before a source is looked at
  const SECONDS = 30; // what takes longer is ended; the assembler ends loops of inline Python sooner
  const source = part("source");

  let facts; // of the build: engine, its bytes, examples
  let trusted = true; // whether the source's Python may run: not where it came by a link or from a file
  let seen = { source: null, problems: [], kernels: [] };

  const make = (tag, text = "", className = "") => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const RANK = ["hint", "note", "warning", "error"];
  const worse = (one, other) => RANK.indexOf(one.severity) - RANK.indexOf(other.severity) || other.line - one.line;
  const say = (text) => (part("said").textContent = text);
  const lines = () => source.value.split("\n");

  // ---- the worker: one question at a time

  let worker, ready, waiting, queue = Promise.resolve();

  function start() {
    worker = new Worker(new URL("worker.js", here), { type: "module" });
    ready = new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => {
        if (data.ready) resolve(data.ready);
        else if (data.broken) reject(new Error(`Python does not start: ${data.broken}`));
        else if (waiting) data.failed ? waiting.reject(new Error(data.failed)) : waiting.resolve(data);
      };
      worker.onerror = (event) => reject(new Error(`Python does not start: ${event.message || "files of it are missing"}`));
    });
    ready.catch((error) => say(error.message));
  }

  function ask(name, ...values) {
    const answer = queue.then(async () => {
      await ready;
      const seconds = Number(root.dataset.seconds || SECONDS);
      let watch;
      try {
        return await new Promise((resolve, reject) => {
          waiting = { resolve, reject };
          watch = setTimeout(() => reject(new Error(`this took more than ${seconds} seconds and was ended`)), 1000 * seconds);
          worker.postMessage({ name, values });
        });
      } catch (error) { // what has failed may not go on either, such as Python that is out of memory
        worker.terminate();
        start();
        throw error;
      } finally {
        clearTimeout(watch);
        waiting = undefined;
      }
    });
    queue = answer.catch(() => {});
    return answer;
  }

  const given = () => [source.value, part("arch").value, trusted];

  // ---- the editor: what is underlined and coloured lies under the text that is typed

  const CODE = /^\s*(?:[A-Za-z_.$][\w.$]*\s*:(?![^\s:]*:))?\s*(\[?[-\w]+:[^\s:]+:[^\s:]+:[^\s:]?:[^\s:]+(?::[^\s:]+)?(?=\s))?\s*(@\S+)?\s*([A-Z][\w.]*)?/;
  const OTHERS = /^\s*(\.[a-z]\w*|<\/?\w+>|[A-Za-z_.$][\w.$]*\s*:)/;

  function colours(line) {
    const found = new Array(line.length).fill("");
    const put = (start, end, name) => found.fill(name, start, end);
    const instruction = CODE.exec(line);
    let at = 0;
    ["code", "guard", "mnemonic"].forEach((name, n) => {
      const text = instruction && instruction[n + 1];
      if (!text) return;
      at = line.indexOf(text, at);
      put(at, at + text.length, name);
      at += text.length;
    });
    const other = OTHERS.exec(line);
    if (other) put(other[0].length - other[1].length, other[0].length, "directive");
    const comment = /(^|\s)(#|\/\/)/.exec(line);
    if (comment) put(comment.index, line.length, "comment");
    return found;
  }

  function paint() {
    const texts = lines();
    const under = new Map();
    if (seen.source === source.value) {
      for (const one of seen.problems) under.set(one.line, [...(under.get(one.line) || []), one]);
    }
    const page = document.createDocumentFragment();
    const numbers = document.createDocumentFragment();
    texts.forEach((line, n) => {
      const names = colours(line);
      const found = under.get(n) || [];
      for (const one of found) for (let c = one.start; c < Math.min(one.end, line.length); c++) {
        names[c] = `${names[c].split(" ")[0]} ${one.severity}`;
      }
      for (let c = 0, end; c < line.length; c = end) {
        for (end = c + 1; end < line.length && names[end] === names[c]; end++);
        page.append(make("span", line.slice(c, end), names[c]));
      }
      page.append("\n");
      numbers.append(make("span", `${n + 1}\n`, found.length ? found.at(-1).severity : ""));
    });
    part("shown").replaceChildren(page);
    part("numbers").replaceChildren(numbers);
    scrolled();
  }

  function scrolled() {
    part("shown").style.transform = `translate(${-source.scrollLeft}px, ${-source.scrollTop}px)`;
    part("numbers").style.transform = `translateY(${-source.scrollTop}px)`;
  }

  function place() { // line and column of the cursor
    const before = source.value.slice(0, source.selectionStart).split("\n");
    return [before.length - 1, before.at(-1).length];
  }

  function go(line, column = 0) {
    const texts = lines();
    if (line >= texts.length) return;
    const at = texts.slice(0, line).reduce((sum, text) => sum + text.length + 1, 0) + column;
    source.focus({ preventScroll: true });
    source.setSelectionRange(at, at);
    const height = source.scrollHeight / texts.length;
    source.scrollTop = Math.max(0, (line + 0.5) * height - source.clientHeight / 2);
    root.querySelector(".try-editor").scrollIntoView({ block: "nearest" });
    tell();
  }

  // ---- what is said of it

  let pause, looking = false, again = false;

  function changed() {
    paint();
    part("words").classList.add("try-old");
    clearTimeout(pause);
    pause = setTimeout(look, PAUSE);
  }

  async function look() {
    clearTimeout(pause);
    if (looking) return void (again = true);
    looking = true;
    const what = given();
    try {
      const { found, printed } = await ask("look", ...what);
      seen = { source: what[0], ...found };
      seen.problems.sort(worse);
      show(printed);
    } catch (error) {
      seen = { source: what[0], problems: [], kernels: [] };
      say(`Not looked at: ${error.message}`);
      findings();
      paint();
    }
    looking = false;
    if (again) {
      again = false;
      look();
    } else tell();
  }

  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

  function show(printed) {
    const rows = seen.kernels.reduce((sum, kernel) => sum + kernel.rows.length, 0);
    const count = (severity) => seen.problems.filter((one) => one.severity === severity).length;
    const said = ["error", "warning", "note"].filter(count).map((severity) => counted(count(severity), severity));
    const size = seen.kernels.length ? `${seen.arch}, ${counted(rows, "instruction")}: ` : `${seen.arch}, not assembled: `;
    say(size + (said.join(", ") || (seen.refused ? "its Python was not run" : "no findings")));
    part("trust").hidden = !seen.refused;
    part("printed").hidden = !printed.length;
    part("printed").textContent = printed.join("\n");
    findings();
    if (seen.kernels.length) words();
    paint();
  }

  function findings() {
    const list = seen.problems.toReversed().map((one) => {
      const item = make("li", "", one.severity);
      const link = make("a", `line ${one.line + 1}`);
      link.href = "#";
      link.onclick = (event) => { event.preventDefault(); go(one.line, one.start); };
      item.append(make("b", one.severity), " ", link, ` ${one.message} `);
      if (one.kind) {
        const rule = make("a", `[${one.kind}]`);
        rule.href = `linter.html#${one.kind}`;
        item.append(rule);
      }
      if (one.other) {
        const other = make("a", `line ${one.other.line + 1}`);
        other.href = "#";
        other.onclick = (event) => { event.preventDefault(); go(one.other.line); };
        item.append(make("br"), other, ": ", make("code", one.other.text));
      }
      if (one.hint) item.append(make("br"), make("i", `hint: ${one.hint}`));
      return item;
    });
    part("findings").replaceChildren(...list);
    const loops = seen.kernels.flatMap((kernel) => kernel.loops);
    part("loops").hidden = !loops.length;
    part("loops").querySelector("pre").textContent = loops.join("\n\n");
  }

  function words() {
    const severity = new Map(seen.problems.filter((one) => one.severity !== "note").map((one) => [one.line, one.severity]));
    const bodies = seen.kernels.map((kernel) => {
      const body = make("tbody");
      const title = make("tr");
      const head = make("th", `${kernel.name}, ${counted(kernel.rows.length, "instruction")}`);
      head.colSpan = 8;
      title.append(head);
      body.append(title);
      for (const row of kernel.rows) {
        const line = make("tr", "", severity.get(row.line) || "");
        line.dataset.line = row.line;
        const code = [0, 1, 2, 3, 4].map((n) => make("td", row.code[n] || ""));
        line.append(make("td", row.address), ...code, make("td", row.text), make("td", row.word));
        body.append(line);
      }
      return body;
    });
    const table = part("words");
    table.classList.remove("try-old");
    table.querySelectorAll("tbody").forEach((body) => body.remove());
    table.append(...bodies);
  }

  let telling;

  function tell() { // of what the cursor stands on
    const [line, column] = place();
    for (const row of part("words").querySelectorAll("tr[data-line]")) {
      row.classList.toggle("try-here", Number(row.dataset.line) === line);
    }
    clearTimeout(telling);
    telling = setTimeout(async () => {
      if (seen.source !== source.value) return; // it is being typed; look() asks again
      const what = given();
      const answer = await ask("hover", ...what, line, column).catch(() => undefined);
      if (answer && what[0] === source.value) told(answer.found);
    }, 120);
  }

  function told(text) { // Markdown as show.py writes it: lines, `code`, **strong**, ``` blocks
    const parts = text.split(/^```(?:\w+)?\n([\s\S]*?)^```$/m).flatMap((block, n) => {
      if (n % 2) return [make("pre", block)];
      return block.split("\n").filter((line) => line.trim()).map((line) => {
        const row = make("div");
        line.trim().split(/(`[^`]+`|\*\*[^*]+\*\*)/).forEach((piece, k) => {
          if (k % 2) row.append(make(piece[0] === "`" ? "code" : "b", piece.replace(/^(`|\*\*)|(`|\*\*)$/g, "")));
          else row.append(piece);
        });
        return row;
      });
    });
    part("told").replaceChildren(...(parts.length ? parts : [make("i", part("told").dataset.empty)]));
  }

  // ---- buttons

  function put(text, arch, trust) {
    source.value = text;
    if ([...part("arch").options].some((one) => one.value === arch)) part("arch").value = arch;
    trusted = trust;
    source.setSelectionRange(0, 0);
    source.scrollTop = source.scrollLeft = 0;
    paint();
    look();
  }

  async function schedule(anew) {
    const before = source.value;
    const { found } = await ask("schedule", ...given(), anew);
    if (found.problem) return say(`Not scheduled: ${found.problem}`);
    if (source.value !== before) return;
    if (found.text === before) return say("Every instruction has this code already.");
    source.focus();
    source.select();
    if (!document.execCommand("insertText", false, found.text)) source.value = found.text; // the former can be undone
    source.setSelectionRange(0, 0);
    source.scrollTop = 0;
    await look();
    if (found.notes.length) say(found.notes.join("; "));
  }

  async function download() {
    const { found } = await ask("cubin", ...given());
    if (found.problem) return say(`Not assembled: ${found.problem}`);
    const link = make("a");
    const bytes = Uint8Array.from(atob(found.data), (letter) => letter.charCodeAt(0));
    link.href = URL.createObjectURL(new Blob([bytes]));
    link.download = "kernel.cubin";
    link.click();
    URL.revokeObjectURL(link.href);
  }

  async function open(file) {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (bytes[0] !== 0x7f || bytes[1] !== 0x45) return put(new TextDecoder().decode(bytes), "", false);
    const { found } = await ask("taken_apart", bytes);
    if (found.problem) return say(`${file.name}: ${found.problem}`);
    put(found.text, found.arch, false);
  }

  const through = (bytes, stream) => new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer();

  async function share() {
    const packed = new Uint8Array(await through(new TextEncoder().encode(source.value), new CompressionStream("deflate-raw")));
    const text = btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
    const safe = text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    history.replaceState(null, "", `#arch=${part("arch").value}&kernel=${safe}`);
    const copied = await navigator.clipboard?.writeText(location.href).then(() => true, () => false);
    say(copied ? "The link is copied; it holds the source." : "The address of this page is the link now; it holds the source.");
  }

  async function linked() { // the source that the address holds
    const kernel = /[#&]kernel=([\w-]+)/.exec(location.hash);
    if (!kernel) return false;
    try {
      const text = atob(kernel[1].replaceAll("-", "+").replaceAll("_", "/"));
      const bytes = await through(Uint8Array.from(text, (letter) => letter.charCodeAt(0)), new DecompressionStream("deflate-raw"));
      put(new TextDecoder().decode(bytes), /[#&]arch=(\w+)/.exec(location.hash)?.[1], false);
      return true;
    } catch {
      say("This link is damaged: it holds no source.");
      return false;
    }
  }

  const told_of = (work) => (...values) => work(...values).catch((error) => say(error.message));

  async function begin() {
    if (location.protocol === "file:") {
      part("file").hidden = false;
      return;
    }
    facts = await (await fetch(new URL("try.json", here))).json();
    if (!facts.engine) {
      part("missing").hidden = false;
      return;
    }
    root.hidden = false;
    say(`Python is loading, ${Math.round(facts.bytes / 1e6)} MB ...`);
    const examples = part("example");
    examples.append(...Object.keys(facts.examples).map((name) => new Option(name)));
    start();
    const about = await ready;
    part("version").textContent = `TuringAs ${about.version}, Pyodide ${about.python}`;
    part("arch").append(...about.archs.map((name) => new Option(name)));
    part("arch").value = "sm_90a";
    part("arch").onchange = look;
    examples.onchange = () => put(facts.examples[examples.value], "", true);
    source.oninput = changed;
    source.onscroll = scrolled;
    document.addEventListener("selectionchange", () => document.activeElement === source && tell());
    source.onclick = tell;
    part("words").onclick = (event) => {
      const line = Number(event.target.closest("tr")?.dataset.line ?? -1);
      if (line >= 0) go(line);
    };
    part("schedule").onclick = told_of(() => schedule(false));
    part("anew").onclick = told_of(() => schedule(true));
    part("cubin").onclick = told_of(download);
    part("share").onclick = told_of(share);
    part("open").onchange = told_of(async () => part("open").files[0] && open(part("open").files[0]));
    part("run").onclick = () => { trusted = true; part("trust").hidden = true; look(); };
    window.addEventListener("hashchange", linked);
    examples.value = "copy";
    if (!(await linked())) put(facts.examples.copy, "", true);
  }

  begin().catch((error) => say(error.message));
})();
