import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once as event } from "node:events";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { connect as dial } from "@nats-io/transport-node";
import {
  AbortError, type CallOptions, type Client, ClosedError, natsid, NatsidError, NotServedError,
  TimeoutError,
} from "natsid";
import { start } from "natsid/testing";
import { connect, Desk, failure, server, slack, sleep, until } from "./desk.ts";

const calls: Record<string, (client: Client, options?: CallOptions) => Promise<unknown>> = {
  next: (client, options) => client.segment("order").next(options),
  nextN: (client, options) => client.segment("order").nextN(3, options),
  prefetch: (client, options) => client.segment("order", { prefetch: 10, maxAge: 1000 }).next(options),
};

test("a call ends with its signal, and never otherwise", async () => {
  const desk = await Desk.open();
  const client = await desk.client();
  desk.hold();
  for (const [name, call] of Object.entries(calls)) {
    const before = desk.asked.length;
    const done = await failure(call(client, { signal: AbortSignal.abort() }));
    assert.ok(done instanceof AbortError && done.name === "AbortError", name);
    assert.match(done.message, /nothing was sent on desk\d+\.segment\.order: the call was canceled before/);
    await sleep(10);
    assert.equal(desk.asked.length, before, `${name}: a request for a call that had ended`);

    const stop = new AbortController();
    const waits = call(client, { signal: stop.signal });
    await until("a request", () => desk.asked.length > before);
    const began = performance.now();
    stop.abort(new Error("the user left"));
    const error = await failure(waits);
    assert.ok(error instanceof AbortError, name);
    assert.match(String(error.cause), /the user left/);
    assert.ok(performance.now() - began < slack);

    const late = await failure(call(client, { signal: AbortSignal.timeout(50) }));
    assert.ok(late instanceof TimeoutError && late.name === "TimeoutError", name);
  }
});

test("ensureTag ends with its signal and its timeout, in each of its requests", async () => {
  const nc = await connect();
  const answers = [undefined, "[]"];
  for (const list of answers) {
    const namespace = `silent${answers.indexOf(list)}`;
    nc.subscribe(`${namespace}.tag.>`, {
      callback: (_, msg) => {
        if (list && msg.subject.endsWith("list")) msg.respond(list);
      },
    });
    const ids = natsid(nc, { namespace });
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 50);
    assert.ok((await failure(ids.ensureTag("order", {}, { signal: stop.signal }))) instanceof AbortError, list);
    assert.ok((await failure(ids.ensureTag("order", {}, { timeout: 50 }))) instanceof TimeoutError, list);
    const unsent = await failure(ids.ensureTag("order", {}, { signal: AbortSignal.abort() }));
    assert.match(unsent.message, /nothing was sent on silent\d\.tag\.list/);
  }
});

test("an error of another copy of the package is of its class", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "natsid-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "errors.mjs"); // Bun takes errors.js?copy for errors.js
  copyFileSync(new URL("../dist/errors.js", import.meta.url), file);
  const copy: typeof import("natsid") = await import(pathToFileURL(file).href);
  const theirs = new copy.NotServedError("theirs");
  assert.ok(copy.NotServedError !== NotServedError && theirs instanceof NotServedError && theirs instanceof NatsidError);
  assert.ok(!(theirs instanceof ClosedError) && !(new Error("other") instanceof NatsidError));
  for (const other of [undefined, null, "text", { name: "NotServedError" }]) {
    assert.ok(!((other as unknown) instanceof NotServedError));
  }
});

test("the server for tests plays a fault after the process was held for seconds", async () => {
  const own = await start();
  await own.resume();
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6500); // as at a breakpoint
  const began = performance.now();
  await own.resume();
  assert.ok(performance.now() - began < slack);
  await own.stop();
});

test("a timeout that is none is refused, and is no time that is up", async () => {
  const nc = await connect();
  const order = natsid(nc).segment("order");
  for (const timeout of [-1, NaN, "1s" as unknown as number]) {
    await assert.rejects(async () => order.next({ timeout }), RangeError);
    await assert.rejects(order.nextN(2, { timeout }), RangeError);
    assert.throws(() => natsid(nc, { timeout }), RangeError);
  }
});

test("a signal keeps no call that has ended", async () => {
  const order = natsid(await connect()).segment("order");
  const { signal } = new AbortController();
  let listeners = 0;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...args: Parameters<typeof add>) => (listeners++, add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => (listeners--, remove(...args));
  await Promise.all([order.next({ signal }), order.nextN(2, { signal }), order.next({ signal })]);
  assert.equal(listeners, 0);
});

test("replies arrive at the connection's own prefix of inboxes", async () => {
  const nc = await connect({ inboxPrefix: "_INBOX_shop.a" });
  const desk = await Desk.open();
  let reply = "";
  desk.script = ({ msg }) => {
    reply = msg.reply!;
    return false;
  };
  await desk.clientOn(nc).segment("order").next();
  assert.match(reply, /^_INBOX_shop\.a\./);
});

test("a process that holds IDs ends when its connection is closed", async () => {
  const program = `
    import { connect } from "@nats-io/transport-node";
    import { natsid } from "natsid";
    const nc = await connect({ servers: process.argv.at(-1) });
    const held = natsid(nc).segment("ends", { prefetch: 1000, maxAge: 3_600_000 });
    console.log(await held.next());
    await nc.close();`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const args = process.versions["bun"] ? ["-e"] : process.versions["deno"] ? ["eval"] : ["--input-type=module", "-e"];
  const child = spawn(process.execPath, [...args, program, server.nats], { cwd, stdio: "inherit" });
  const began = performance.now();
  const timer = setTimeout(() => child.kill(), 20_000);
  const [code] = await event(child, "exit");
  clearTimeout(timer);
  assert.equal(code, 0, `it ended after ${performance.now() - began} ms`);
});

test("a test server ends when it is stopped, and says why it cannot start", async () => {
  const other = await start({ layout: "js53", namespace: "shop" });
  const nc = await dial({ servers: other.nats });
  const flake = await natsid(nc, { namespace: "shop" }).snowflake().nextNumber();
  assert.ok(Number.isSafeInteger(flake));
  await assert.rejects(other.order("repeat"), /natsid gives no ID twice/);
  const health = await fetch(`${other.http}/healthz`);
  assert.equal(health.status, 200);
  await nc.close();
  await other.stop();
  await other.stop();
  await assert.rejects(fetch(`${other.http}/healthz`));
  await assert.rejects(start({ layout: "none" }), /ended with/);
  const before = process.env["NATSID_BIN"];
  process.env["NATSID_BIN"] = "/no/such/program";
  await assert.rejects(start(), /there is no program \/no\/such\/program: install natsid/);
  process.env["NATSID_BIN"] = before;
});
