// What the settings of the editor come to: the program, the server's options, arguments of commands.
"use strict";

/** The program and the arguments before its command. */
function commandOf(settings) {
  const found = settings.get("command");
  return Array.isArray(found) && found.length ? found : ["turingas"];
}

/** What the server takes as initialization options and as settings. */
function optionsOf(settings) {
  const names = ["arch", "include", "define", "allowPython", "inlayHints"];
  return Object.fromEntries(names.map((name) => [name, settings.get(name)]));
}

/** Arguments of a task. */
function taskArguments(definition, file) {
  return [definition.command, definition.file ?? file, ...(definition.args ?? [])];
}

/** Arguments of `turingas report`; inline Python runs only where the setting allows it. */
function reportArguments(file, page, options, run) {
  const args = ["report", file, "-o", page];
  if (options.arch) args.push("--arch", options.arch);
  for (const folder of options.include ?? []) args.push("-I", folder);
  for (const [name, value] of Object.entries(options.define ?? {})) args.push("-D", `${name}=${value}`);
  if (!options.allowPython) args.push("--no-python");
  if (run) args.push("--run", run.args, "--grid", run.grid, "--block", run.block);
  return args;
}

module.exports = { commandOf, optionsOf, reportArguments, taskArguments };
