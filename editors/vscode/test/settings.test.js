"use strict";

const assert = require("node:assert");
const { test } = require("node:test");
const { commandOf, optionsOf, reportArguments, taskArguments } = require("../src/settings");

const given = (values) => ({ get: (name) => values[name] });

test("the program", () => {
  assert.deepStrictEqual(commandOf(given({})), ["turingas"]);
  assert.deepStrictEqual(commandOf(given({ command: ["python", "-m", "turingas"] })), ["python", "-m", "turingas"]);
});

test("a report runs no inline Python unless that is allowed", () => {
  const options = optionsOf(given({ arch: "sm_90", include: ["a b"], define: { N: 4 }, allowPython: false }));
  const safe = ["report", "k.sass", "-o", "k.html", "--arch", "sm_90", "-I", "a b", "-D", "N=4", "--no-python"];
  assert.deepStrictEqual(reportArguments("k.sass", "k.html", options), safe);
  const run = { args: "f32[4]", grid: "1", block: "4" };
  assert.deepStrictEqual(
    reportArguments("k.sass", "k.html", { allowPython: true }, run),
    ["report", "k.sass", "-o", "k.html", "--run", "f32[4]", "--grid", "1", "--block", "4"],
  );
});

test("a task", () => {
  assert.deepStrictEqual(taskArguments({ command: "lint", args: ["--no-loops"] }, "${file}"), ["lint", "${file}", "--no-loops"]);
});
