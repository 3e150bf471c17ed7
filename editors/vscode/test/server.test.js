// `turingas lsp` by the library that the extension's client is built on: VS Code itself is no package.
"use strict";

const assert = require("node:assert");
const { spawn } = require("node:child_process");
const { test } = require("node:test");
const {
  CompletionRequest, createProtocolConnection, DidOpenTextDocumentNotification, ExitNotification, HoverRequest,
  InitializedNotification, InitializeRequest, PublishDiagnosticsNotification, ShutdownRequest, StreamMessageReader,
  StreamMessageWriter,
} = require("vscode-languageserver-protocol/node");
const { optionsOf } = require("../src/settings");

const TEXT = "--:-:0:-:1   S2R R0, SR_TID.X;\n--:-:-:-:1   IADD3 R1, R0, 0x1, RZ;\n--:-:-:-:1   FOO R1;\n--:-:-:Y:5   EXIT;\n";
const textDocument = { uri: "file:///kernel.sass" };

test("diagnostics, hover and completion", { timeout: 60_000 }, async (context) => {
  const server = spawn(process.env.TURINGAS ?? "turingas", ["lsp"], { stdio: ["pipe", "pipe", "inherit"] });
  context.after(() => server.kill());
  const connection = createProtocolConnection(new StreamMessageReader(server.stdout), new StreamMessageWriter(server.stdin));
  const told = new Promise((done) => connection.onNotification(PublishDiagnosticsNotification.type, done));
  connection.listen();
  const initializationOptions = optionsOf({ get: (name) => ({ arch: "sm_80", allowPython: false })[name] });
  const { capabilities } = await connection.sendRequest(InitializeRequest.type, {
    processId: process.pid, rootUri: null, capabilities: {}, initializationOptions,
  });
  assert.ok(capabilities.renameProvider && capabilities.inlayHintProvider && capabilities.codeActionProvider);
  await connection.sendNotification(InitializedNotification.type, {});
  await connection.sendNotification(DidOpenTextDocumentNotification.type, {
    textDocument: { ...textDocument, languageId: "nvsass", version: 1, text: TEXT },
  });
  const { diagnostics } = await told;
  const wrong = diagnostics.find((one) => one.message.includes("'FOO'"));
  assert.deepStrictEqual([wrong.severity, wrong.range.start.line, wrong.range.start.character], [1, 2, 13]);
  const hover = await connection.sendRequest(HoverRequest.type, { textDocument, position: { line: 1, character: 14 } });
  assert.match(hover.contents.value, /IADD3[^]*operands and their bits/);
  const items = await connection.sendRequest(CompletionRequest.type, { textDocument, position: { line: 2, character: 15 } });
  assert.ok(items.some((one) => one.label.startsWith("F")));
  await connection.sendRequest(ShutdownRequest.type);
  await connection.sendNotification(ExitNotification.type);
  assert.strictEqual(await new Promise((done) => server.on("exit", done)), 0);
});
