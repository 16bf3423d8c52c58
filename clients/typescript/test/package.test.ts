// What is published. It is the same for each runtime.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";
import { server } from "./desk.ts";

const here = dirname(fileURLToPath(import.meta.url));
const root = dirname(here);
const run = promisify(execFile);
const most = 15 * 1024;

function temporary(t: { after(f: () => void): void }): string {
  const dir = mkdtempSync(join(tmpdir(), "natsid-package-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

/** Packs the package into a folder, and returns the path of the archive. */
async function pack(from: string, into: string, ...flags: string[]): Promise<string> {
  const args = ["pack", "--silent", ...flags, "--pack-destination", into];
  const { stdout } = await run("npm", args, { cwd: from });
  return join(into, stdout.trim().split("\n").at(-1)!);
}

test("the package is small", () => {
  const { outputFiles } = buildSync({
    entryPoints: [join(root, "dist/index.js")], bundle: true, format: "esm", packages: "external", write: false,
  });
  const size = gzipSync(outputFiles[0]!.contents, { level: 9 }).length;
  console.log(`natsid: ${size} bytes, gzipped`);
  assert.ok(size <= most, `${size} bytes, want ${most} at most`);
});

test("packed twice, from two folders, the package has the same bytes", async (t) => {
  const dir = temporary(t);
  const copy = join(dir, "copy");
  mkdirSync(copy);
  for (const part of readdirSync(root).filter((name) => name !== "dist")) {
    const linked = part === "node_modules" || part === "runtimes";
    if (linked) symlinkSync(join(root, part), join(copy, part));
    else cpSync(join(root, part), join(copy, part), { recursive: true });
  }
  // The copy is not built yet: npm does that first.
  const [a, b] = [await pack(root, dir, "--ignore-scripts"), await pack(copy, copy)];
  assert.ok(readFileSync(a).equals(readFileSync(b)));
  const { stdout } = await run("tar", ["tf", a]);
  assert.ok(stdout.includes("package/LICENSE") && !stdout.includes("src/"), stdout);
});

test("publint and attw find nothing", async (t) => {
  const archive = await pack(root, temporary(t), "--ignore-scripts");
  const tool = (path: string, ...args: string[]) => run(process.execPath, [join(root, "node_modules", path), ...args]);
  await tool("publint/src/cli.js", archive, "--strict");
  await tool("@arethetypeswrong/cli/dist/index.js", archive, "--profile", "esm-only");
});

test("the API is that of api.d.ts", () => {
  const [, parts] = (JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { files: string[] }).files;
  const names = /\{(.*)\}/.exec(parts!)![1]!.split(",");
  const api = names.map((name) => `// ${name}\n${readFileSync(join(root, `dist/${name}.d.ts`), "utf8")}`).join("\n");
  const report = join(root, "api.d.ts");
  if (process.env.UPDATE) writeFileSync(report, api);
  assert.equal(api, readFileSync(report, "utf8"), "if the API shall change: UPDATE=1 npm test");
});

test("the version is the tag's, of which the changelog has a section", () => {
  const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
  const [, newest] = /^## \[(\d[^\]]*)\]/m.exec(readFileSync(join(root, "../../CHANGELOG.md"), "utf8"))!;
  assert.equal(version, newest);
});

test("no lock file names a registry", () => {
  for (const lock of ["", "runtimes/oldest", "runtimes/others"]) {
    assert.doesNotMatch(readFileSync(join(root, lock, "package-lock.json"), "utf8"), /"resolved"/, lock);
  }
});

test("the first example of the README runs", async () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const [, program] = /```js\n(.*?)```/s.exec(readme)!;
  const here = program!.replace("nats://127.0.0.1:4222", server.nats);
  assert.notEqual(here, program);
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", here], { cwd: root });
  assert.match(stdout, /^\{"id":"\d+","item":"tea"\}\n$/);
  assert.ok(readme.split("\n").length <= 60, "the README has more than a screen");
});

test("the program of the tutorial prints what it shows", async () => {
  const tutorial = readFileSync(join(root, "../../docs/tutorial.md"), "utf8");
  const [, program] = /```js\n(.*?)```/s.exec(tutorial)!;
  const [, shown] = /\$ node ids\.mjs\n(.*?)```/s.exec(tutorial)!;
  const here = program!.replace("127.0.0.1:4222", server.nats);
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", here], { cwd: root });
  const shape = (text: string) => text.replaceAll(/[\d-]+T[\d:.]+Z/g, "TIME").replaceAll(/\d{4,}n?|^\d+n/gm, "ID");
  assert.equal(shape(stdout), shape(shown!));
});

test("the examples run", async () => {
  const { stdout } = await run(process.execPath, ["examples/events.mjs", server.nats], { cwd: root });
  assert.match(stdout, /^1000000 events in [\d.]+ s, the last with ID \d+ of 20/);
  await run(process.execPath, ["--test", "examples/orders.test.mjs"], { cwd: root });

  const orders = spawn(process.execPath, ["examples/orders.mjs", server.nats, "0"], { cwd: root });
  const [url] = (await once(createInterface(orders.stdout), "line")) as [string];
  const ids = await Promise.all(Array.from({ length: 20 }, async () => {
    const response = await fetch(url, { method: "POST", body: '{"item":"tea"}' });
    return ((await response.json()) as { id: string }).id;
  }));
  assert.equal(new Set(ids).size, 20);
  orders.kill("SIGTERM");
  assert.deepEqual(await once(orders, "exit"), [0, null]);
});
