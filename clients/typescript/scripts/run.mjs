// Runs what package.json names, on Node.js 22 or newer: its own, or that of runtimes/oldest, which `make deps`
// installs.
//
//   node scripts/run.mjs build | test | matrix | bench | node FILE
//
// Tests and benchmarks use the natsid of NATSID_BIN, or build that of this repository.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const oldest = 22;

/** Ends with a sentence. */
function fail(sentence) {
  throw new Error(sentence);
}

/** Runs a program, and reports whether it succeeds. */
function run(program, args, env = {}) {
  const { status, error } = spawnSync(program, args, { cwd: here, stdio: "inherit", env: { ...process.env, ...env } });
  if (error) console.error(`natsid: ${program}: ${error.message}`);
  return status === 0;
}

function mustRun(program, args) {
  if (!run(program, args)) fail(`${program} ${args.join(" ")} failed`);
}

/** Returns the program of a runtime that runtimes/ has; undefined if it is not installed. */
function installed(folder, name) {
  const modules = join(here, "runtimes", folder, "node_modules");
  const [scope, rest] = name.startsWith("@") ? name.split("/") : ["", name];
  const at = join(modules, scope);
  const found = existsSync(at) && readdirSync(at).find((entry) => entry.startsWith(rest));
  const program = found && ["bin/node", "bin/bun", "deno"].map((file) => join(at, found, file)).find(existsSync);
  return program || undefined;
}

function node() {
  if (Number(process.versions.node.split(".")[0]) >= oldest) return process.execPath;
  return installed("oldest", "node22") ??
    fail(`Node.js ${process.versions.node} is too old for the package: \`make deps\` installs ${oldest} beside it`);
}

/** Calls f with the natsid for tests. */
function withNatsid(f) {
  if (process.env.NATSID_BIN) return f({});
  const dir = mkdtempSync(join(tmpdir(), "natsid-"));
  try {
    const program = join(dir, "natsid");
    const built = spawnSync("go", ["build", "-o", program, "."], { cwd: join(here, "..", ".."), stdio: "inherit" });
    if (built.status !== 0) fail("natsid cannot be built");
    return f({ NATSID_BIN: program });
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

function build() {
  rmSync(join(here, "dist"), { recursive: true, force: true });
  // Comments are for readers of the types and of the sources, not for runtimes.
  const tsc = "node_modules/typescript/bin/tsc";
  mustRun(node(), [tsc, "--removeComments", "--declaration", "false"]);
  mustRun(node(), [tsc, "--emitDeclarationOnly"]);
  mustRun(node(), [tsc, "-p", "tsconfig.test.json"]);
}

const files = readdirSync(join(here, "test")).filter((name) => name.endsWith(".test.ts")).map((name) => `test/${name}`);
const everywhere = files.filter((name) => !/package|browser/.test(name)); // those are not about the runtime
// Tests wait more than they compute, so more of them run at a time than there are CPUs.
const nodeTest = ["--test", "--test-reporter=spec", "--test-concurrency=6", "--test-timeout=240000"];

function matrix() {
  for (const folder of ["oldest", "others"]) mustRun("npm", ["ci", "--prefix", join("runtimes", folder)]);
  // Bun runs all files that it is given in one process, where they would share one natsid.
  const bun = everywhere.map((name) => ["test", "--timeout", "240000", `./${name}`]);
  const runtimes = [
    ["Node.js 22", installed("oldest", "node22"), [[...nodeTest, ...files]]],
    ["Node.js 24", installed("others", "node24"), [[...nodeTest, ...everywhere]]],
    ["Node.js 26", installed("others", "node26"), [[...nodeTest, ...everywhere]]],
    ["Deno", installed("others", "@deno/linux"), [["test", "-A", "--no-check", ...everywhere]]],
    ["Bun", installed("others", "@oven/bun-linux"), bun],
  ];
  const rows = withNatsid((env) => runtimes.map(([name, program, commands]) => {
    if (!program) return [name, "not to be had here"];
    console.log(`\n== ${name}`);
    return [name, commands.every((command) => run(program, command, env)) ? "passes" : "FAILS"];
  }));
  console.log(["", ...rows.map(([name, result]) => `${name.padEnd(12)}${result}`)].join("\n"));
  return rows.every(([, result]) => result !== "FAILS");
}

const [task, ...args] = process.argv.slice(2);
const tasks = {
  build: () => true,
  test: () => withNatsid((env) => run(node(), [...nodeTest, ...(args.length > 0 ? args : files)], env)),
  matrix,
  bench: () => withNatsid((env) => run(node(), ["bench.mjs", ...args], env)),
  node: () => withNatsid((env) => run(node(), args, env)),
};
try {
  if (!Object.hasOwn(tasks, task)) fail(`there is no task ${task}; there is: ${Object.keys(tasks).join(", ")}`);
  build();
  process.exitCode = tasks[task]() ? 0 : 1;
} catch (error) {
  console.error(`natsid: ${error.message}`);
  process.exitCode = 1;
}
