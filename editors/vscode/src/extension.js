// The extension: tells SASS from style sheets, starts `turingas lsp`, has tasks, and shows `turingas report`.
"use strict";

const { execFile } = require("node:child_process");
const fs = require("node:fs/promises");
const os = require("node:os");
const path = require("node:path");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");
const { isSass, LINES } = require("./detect");
const { commandOf, optionsOf, reportArguments, taskArguments } = require("./settings");

let client;

const settings = () => vscode.workspace.getConfiguration("turingas");

async function start() {
  const [command, ...before] = commandOf(settings());
  client = new LanguageClient(
    "turingas",
    "TuringAs",
    { command, args: [...before, "lsp"] },
    {
      documentSelector: [{ language: "nvsass" }],
      initializationOptions: optionsOf(settings()),
    },
  );
  try {
    await client.start();
  } catch (error) {
    client = undefined;
    const what = `${[command, ...before].join(" ")} lsp does not start: ${error.message}`;
    const hint = "pip install turingas 'pygls>=2', or set turingas.command";
    vscode.window.showErrorMessage(`TuringAs: ${what} (${hint})`);
  }
}

async function restart() {
  await client?.stop();
  client = undefined;
  await start();
}

async function detect(document) {
  if (document.languageId === "nvsass") {
    if (!client) await start();
    return;
  }
  if (!settings().get("detect") || !document.fileName.endsWith(".sass")) return;
  const first = new vscode.Range(0, 0, LINES, 0);
  if (isSass(document.getText(first))) await vscode.languages.setTextDocumentLanguage(document, "nvsass");
}

function task(definition, file) {
  const [command, ...before] = commandOf(settings());
  const made = new vscode.Task(
    definition,
    vscode.TaskScope.Workspace,
    `${definition.command} ${definition.file ? path.basename(definition.file) : "this file"}`,
    "turingas",
    new vscode.ProcessExecution(command, [...before, ...taskArguments(definition, file)]),
    ["$turingas"],
  );
  made.group = vscode.TaskGroup.Build;
  return made;
}

const tasks = {
  provideTasks: () =>
    ["assemble", "lint"].map((command) => task({ type: "turingas", command }, "${file}")),
  resolveTask: (given) => task(given.definition, given.definition.file ?? "${file}"),
};

async function report(uri, run) {
  const file = (uri ?? vscode.window.activeTextEditor?.document.uri)?.fsPath;
  if (!file) return;
  const open = vscode.workspace.textDocuments.find((one) => one.uri.fsPath === file);
  if (open?.isDirty && !(await open.save())) return;
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), "turingas-"));
  try {
    const page = path.join(folder, "report.html");
    const [command, ...before] = commandOf(settings());
    const args = [...before, ...reportArguments(file, page, optionsOf(settings()), run)];
    const progress = { location: vscode.ProgressLocation.Window, title: "turingas report" };
    await vscode.window.withProgress(progress, () => new Promise((done, failed) => {
      execFile(command, args, { cwd: path.dirname(file), maxBuffer: 1 << 26 }, (error, _, said) =>
        error ? failed(new Error(said.trim() || error.message)) : done());
    }));
    const title = `Report: ${path.basename(file)}`;
    // the page is one file that loads nothing; its scripts are its own
    const options = { enableScripts: true, enableFindWidget: true, localResourceRoots: [] };
    const panel = vscode.window.createWebviewPanel("turingas.report", title, vscode.ViewColumn.Beside, options);
    panel.webview.html = await fs.readFile(page, "utf8");
  } catch (error) {
    vscode.window.showErrorMessage(`turingas report: ${error.message}`);
  } finally {
    await fs.rm(folder, { recursive: true });
  }
}

async function reportOfRun(uri) {
  const args = await vscode.window.showInputBox({
    title: "Run on the CPU device: arguments of the kernel, as in `turingas run`",
    placeHolder: "f32[1024]=random f32[1024]",
  });
  if (args === undefined) return;
  const size = await vscode.window.showInputBox({ title: "Blocks and threads of a block", value: "1 128" });
  const [grid, block] = size?.trim().split(/\s+/) ?? [];
  if (grid && block) await report(uri, { args, grid, block });
}

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.workspace.onDidOpenTextDocument(detect),
    vscode.tasks.registerTaskProvider("turingas", tasks),
    vscode.commands.registerCommand("turingas.report", (uri) => report(uri)),
    vscode.commands.registerCommand("turingas.reportOfRun", reportOfRun),
    vscode.commands.registerCommand("turingas.restart", restart),
    vscode.workspace.onDidChangeConfiguration(async (event) => {
      if (event.affectsConfiguration("turingas.command")) await restart();
      else if (event.affectsConfiguration("turingas"))
        await client?.sendNotification("workspace/didChangeConfiguration", { settings: optionsOf(settings()) });
    }),
  );
  return Promise.all(vscode.workspace.textDocuments.map(detect));
};

exports.deactivate = () => client?.stop();
