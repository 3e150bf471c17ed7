// Runs within VS Code's own extension host, beside the extension as it is installed from the .vsix.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs/promises");
const path = require("node:path");
const vscode = require("vscode");

const TEXT = "--:-:0:-:1   S2R R0, SR_TID.X;\n--:-:-:-:1   IADD3 R1, R0, 0x1, RZ;\n--:-:-:-:1   FOO R1;\n--:-:-:Y:5   EXIT;\n";
const SHEET = "$primary: #333\n\nbody\n  color: $primary\n";
const NAMED = "<regs>\n0 : tid\n1 : sum\n</regs>\nS2R tid, SR_TID.X;\nIADD3 sum, tid, 0x1, RZ;\nEXIT;\n";

const folder = vscode.workspace.workspaceFolders[0].uri;

/** What `ask` comes to as soon as `enough` of it. */
async function until(ask, enough, what) {
  for (let turn = 0; turn < 200; turn++) {
    const found = await ask();
    if (enough(found)) return found;
    await new Promise((done) => setTimeout(done, 100));
  }
  throw new Error(`waited in vain for ${what}`);
}

async function opened(name, text) {
  const uri = vscode.Uri.joinPath(folder, name);
  await fs.writeFile(uri.fsPath, text);
  const document = await vscode.workspace.openTextDocument(uri);
  await vscode.window.showTextDocument(document);
  return document;
}

/** The document as it is once its language is told. */
const language = (name) => vscode.workspace.textDocuments.find((one) => path.basename(one.fileName) === name)?.languageId;
const asked = (command, document, ...more) => vscode.commands.executeCommand(`vscode.execute${command}`, document.uri, ...more);

const tests = {
  async "a source is told from a style sheet"() {
    await opened("sheet.sass", SHEET);
    await opened("kernel.sass", TEXT);
    await until(() => language("kernel.sass"), (found) => found === "nvsass", "the language");
    assert.notStrictEqual(language("sheet.sass"), "nvsass");
  },
  async "errors are underlined, and gone when they are mended"() {
    const document = vscode.workspace.textDocuments.find((one) => one.fileName.endsWith("kernel.sass"));
    const of = () => vscode.languages.getDiagnostics(document.uri);
    const [wrong] = await until(() => of().filter((one) => one.message.includes("'FOO'")), (found) => found.length, "diagnostics");
    assert.deepStrictEqual([wrong.severity, wrong.range.start.line, wrong.range.start.character], [vscode.DiagnosticSeverity.Error, 2, 13]);
    const edit = new vscode.WorkspaceEdit();
    edit.replace(document.uri, new vscode.Range(2, 13, 2, 16), "MOV R2,");
    await vscode.workspace.applyEdit(edit);
    await until(of, (found) => found.every((one) => !one.message.includes("'FOO'")), "their end");
    // a late read of S2R's result is the linter's
    await until(of, (found) => found.some((one) => one.message.includes("R0")), "the linter");
    const actions = await asked("CodeActionProvider", document, new vscode.Range(1, 0, 1, 30));
    assert.ok(actions.length, "code actions");
  },
  async "hover, completion, definition, rename"() {
    const document = await opened("named.sass", NAMED);
    await until(() => language("named.sass"), (found) => found === "nvsass", "the language");
    const here = await until(() => asked("HoverProvider", document, new vscode.Position(5, 1)), (found) => found.length, "a hover");
    assert.match(here[0].contents.map((one) => one.value).join(), /IADD3/);
    const items = await asked("CompletionItemProvider", document, new vscode.Position(6, 1));
    assert.ok(items.items.some((one) => (one.label.label ?? one.label) === "FFMA"));
    const [place] = await asked("DefinitionProvider", document, new vscode.Position(5, 12));
    assert.strictEqual((place.range ?? place.targetRange).start.line, 1);
    const edit = await asked("DocumentRenameProvider", document, new vscode.Position(5, 12), "thread");
    assert.strictEqual(edit.get(document.uri).length, 3);
  },
  async "inlay hints, folding, outline, formatting"() {
    const document = vscode.workspace.textDocuments.find((one) => one.fileName.endsWith("named.sass"));
    const hints = await until(() => asked("InlayHintProvider", document, new vscode.Range(0, 0, 7, 0)), (found) => found.length, "hints");
    assert.match(hints.map((one) => (typeof one.label === "string" ? one.label : one.label.map((part) => part.value).join(""))).join(" "), /:/);
    assert.ok((await asked("FoldingRangeProvider", document)).length);
    assert.ok((await asked("DocumentSymbolProvider", document)).length);
    assert.ok((await asked("FormatDocumentProvider", document, { tabSize: 4, insertSpaces: true })).length);
  },
  async "a file that is opened anew is looked at anew"() {
    await opened("again.sass", NAMED.replace("IADD3", "FOO"));
    const of = () => vscode.languages.getDiagnostics(vscode.Uri.joinPath(folder, "again.sass"));
    await until(of, (found) => found.length, "diagnostics");
    await opened("other.sass", NAMED);
    const document = await opened("again.sass", NAMED.replace("IADD3", "FAA"));
    await until(of, (found) => found.some((one) => one.message.includes("FAA")), "diagnostics of what is there now");
    assert.strictEqual(document.languageId, "nvsass");
  },
  async "a task, with its matcher"() {
    const tasks = await vscode.tasks.fetchTasks({ type: "turingas" });
    assert.deepStrictEqual(tasks.map((one) => one.definition.command).sort(), ["assemble", "lint"]);
    await vscode.window.showTextDocument(await opened("wrong.sass", TEXT));
    const ended = new Promise((done) => vscode.tasks.onDidEndTaskProcess((event) => done(event.exitCode)));
    await vscode.tasks.executeTask(tasks.find((one) => one.definition.command === "assemble"));
    assert.strictEqual(await ended, 1);
    const uri = vscode.Uri.joinPath(folder, "wrong.sass");
    await until(() => vscode.languages.getDiagnostics(uri), (found) => found.filter((one) => one.message.includes("'FOO'")).length > 1, "the matcher's");
  },
  async "the report opens beside the source"() {
    const document = await opened("named.sass", NAMED);
    await vscode.commands.executeCommand("turingas.report", document.uri);
    const labels = () => vscode.window.tabGroups.all.flatMap((group) => group.tabs.map((tab) => tab.label));
    await until(labels, (found) => found.includes("Report: named.sass"), "the report");
    // who started this looks at the page meanwhile
    await until(() => fs.access(path.join(folder.fsPath, "looked")).then(() => true, () => false), (found) => found, "a look at the page");
  },
};

exports.run = async () => {
  const results = {};
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      results[name] = "";
    } catch (error) {
      results[name] = String(error.stack ?? error);
    }
  }
  await fs.writeFile(path.join(folder.fsPath, "results.json"), JSON.stringify({ version: vscode.version, results }));
};
