// The package in a browser, over the WebSocket of NATS.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once as event } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { json } from "node:stream/consumers";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";
import { long, once, server } from "./desk.ts";

const browsers = ["chromium", "chromium-browser", "google-chrome"];
const browser = browsers.find((name) => spawnSync(name, ["--version"]).status === 0);

/** Serves the page with the package inside. */
function page(found: (what: Found) => void) {
  const { outputFiles } = buildSync({
    entryPoints: [fileURLToPath(new URL("page.js", import.meta.url))], bundle: true, format: "esm", write: false,
  });
  return createServer((request, response) => {
    if (request.method === "POST") {
      void json(request).then((what) => found(what as Found));
      response.end();
    } else {
      response.setHeader("Content-Type", "text/html");
      response.end(`<!doctype html><script type="module">${outputFiles[0]!.text.replaceAll("</", "<\\/")}</script>`);
    }
  });
}

/** What the page posts. */
interface Found {
  error?: string;
  shared: string[];
  requests: number;
  run: string[];
  held: string[];
  year: number;
  refused: string;
  waited: boolean;
  aborted: string;
  closed: string;
}

const skip = !browser && !process.env["CI"] && "there is no Chromium";

test("a page draws IDs over a WebSocket", { skip }, async (t) => {
  assert.ok(browser, "under CI a Chromium must be there");
  let found!: (what: Found) => void;
  const posted = new Promise<Found>((resolve) => (found = resolve));
  const host = page(found).listen(0, "127.0.0.1");
  await event(host, "listening");
  const { port } = host.address() as { port: number };
  const dir = mkdtempSync(join(tmpdir(), "natsid-browser-"));
  const child = spawn(browser, [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", `--user-data-dir=${dir}`,
    `http://127.0.0.1:${port}/?nats=${encodeURIComponent(server.websocket)}`,
  ], { stdio: "ignore", detached: true });
  t.after(async () => {
    process.kill(-child.pid!, "SIGKILL"); // all its processes
    await event(child, "exit");
    host.closeAllConnections();
    host.close();
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  });
  const late = setTimeout(() => found({ error: `nothing within ${long} ms` } as Found), long);
  const what = await posted;
  clearTimeout(late);

  assert.equal(what.error, undefined);
  once([...what.shared, ...what.run, ...what.held].map(BigInt), 1800);
  assert.ok(what.requests <= 2, `${what.requests} requests for 500 calls at once`);
  assert.equal(what.year, new Date().getUTCFullYear());
  assert.match(what.refused, /0 IDs: want 1 to/);
  assert.deepEqual([what.waited, what.aborted, what.closed], [true, "TimeoutError", "ClosedError"]);
});
