// Runs app.py for the CDK: with this project's own environment if there is one, otherwise with the python3 of the PATH.
// In JavaScript because the CDK has Node at hand on every system, whatever the shell.
const { spawnSync } = require("node:child_process");
const { existsSync } = require("node:fs");
const path = require("node:path");

const root = path.dirname(__dirname);
const own = [".venv/bin/python", ".venv/Scripts/python.exe"].map((name) => path.join(root, name));
const python = own.find((file) => existsSync(file)) ?? "python3";
const env = {
  // The CDK's library starts Node too: the same one, wherever it is.
  JSII_NODE: process.execPath,
  // Its warnings would begin with a place in its own JavaScript.
  CDK_DISABLE_STACK_TRACE: "1",
  ...process.env,
};
const done = spawnSync(python, [path.join(root, "app.py")], { env, stdio: "inherit" });
if (done.error) {
  console.error(`${python} cannot be run (${done.error.code}): run \`make setup\` first`);
}
process.exitCode = done.status ?? 1;
