"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const { isSass, LINES } = require("../src/detect");

const ROOT = path.join(__dirname, "..", "..", "..");

/** All .sass files under a folder. */
const sources = (folder) =>
  fs.readdirSync(folder, { recursive: true }).filter((name) => name.endsWith(".sass")).map((name) => path.join(folder, name));

test("every source of the repository is SASS", () => {
  const found = ["examples", "kernels_sass"].flatMap((folder) => sources(path.join(ROOT, folder)));
  assert.ok(found.length > 20);
  for (const file of found) {
    const text = fs.readFileSync(file, "utf8");
    // a file that is only included may hold nothing that is ours; then it stays what it is
    if (/^\s*(?:<regs>|\.kernel )/m.test(text.split("\n", LINES).join("\n"))) assert.ok(isSass(text), file);
  }
});

test("style sheets are none", () => {
  const sheets = [
    "$primary: #333\n\nbody\n  color: $primary\n  font: 100% sans-serif\n",
    ".kernel\n  color: red\n\n.function\n  margin: 0 auto\n",
    "@use 'base'\n=mixin($a)\n  a:hover\n    width: calc(100% - #{$a})\n",
    "// --:-: a comment\nnav ul\n  list-style: none\n",
  ];
  for (const sheet of sheets) assert.ok(!isSass(sheet), sheet);
});

test("only the first lines count", () => {
  assert.ok(isSass("\n".repeat(LINES - 1) + "<regs>"));
  assert.ok(!isSass("\n".repeat(LINES) + "<regs>"));
});
