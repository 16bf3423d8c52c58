import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once as event } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { NatsConnection } from "@nats-io/nats-core";
import { connect as dial } from "@nats-io/transport-node";
import {
  AbortError, type CallOptions, type Client, ClosedError, natsid, NatsidError, NotServedError,
  TimeoutError,
} from "natsid";
import { start } from "natsid/testing";
import { connect, Desk, failure, long, once, server, slack, sleep, until } from "./desk.ts";

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

test("a call that gathers beside requests under way ends with its signal", async () => {
  const desk = await Desk.open();
  const ids = await desk.client();
  const order = ids.segment("order");
  desk.hold();
  const under = Array.from({ length: 6 }, () => failure(order.next()));
  await until("a request", () => desk.asked.length > 0);
  const stop = new AbortController();
  const waits = failure(order.next({ signal: stop.signal }));
  const began = performance.now();
  stop.abort();
  assert.ok((await waits) instanceof AbortError && performance.now() - began < slack);
  assert.equal((await failure(order.next({ signal: AbortSignal.timeout(50) }))).name, "TimeoutError");
  ids.close();
  await Promise.all(under);
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

test("an error of another copy of the package is of its class", async () => {
  const copy: typeof import("natsid") = await import(`${new URL("../dist/errors.js", import.meta.url)}?copy`);
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

test("a call ends after its timeout, or that of its client", async () => {
  const desk = await Desk.open();
  desk.hold();
  for (const [name, call] of Object.entries(calls)) {
    for (const [timeout, own, want] of [[300, undefined, 300], [long, 150, 150]] as const) {
      const client = await desk.client({ timeout });
      const began = performance.now();
      const [error] = await Promise.all([
        failure(call(client, { timeout: own })),
        sleep(100).then(() => failure(call(client, own === undefined ? undefined : { timeout: own }))),
      ]);
      const took = performance.now() - began;
      assert.ok(error instanceof TimeoutError, name);
      assert.match(error.message, /no answer on desk\d+\.segment\.order yet; ask again/);
      assert.ok(took >= want + 95 && took < want + slack, `${name}: ${took} ms, want ${want}`);
    }
  }
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

const ends: Record<string, (client: Client, nc: NatsConnection) => unknown> = {
  "client closed": (client) => client.close(),
  "connection closed": (_, nc) => nc.close(),
  "connection draining": (_, nc) => nc.drain(),
};

test("when all is closed calls say so", async () => {
  const desk = await Desk.open();
  const scripts = {
    "without an answer": () => true,
    "in a long pause": (asked) => desk.refuse(asked, 429, { "Natsid-Retry-After-Ms": "60000" }),
    "in short pauses": (asked) => desk.refuse(asked, 503),
  } satisfies Record<string, Desk["script"]>;
  for (const [name, end] of Object.entries(ends)) {
    for (const [state, script] of Object.entries(scripts)) {
      desk.script = script;
      const nc = await connect();
      const client = desk.clientOn(nc);
      const order = client.segment("order");
      const before = desk.asked.length;
      const errors = Object.values(calls).flatMap((call) => [1, 2, 3].map(() => failure(call(client))));
      await until("requests", () => desk.asked.length > before + 1);
      const began = performance.now();
      end(client, nc);
      for (const error of await Promise.all(errors)) {
        assert.ok(error instanceof ClosedError, `${name}, ${state}: ${error}`);
        assert.match(error.message, name === "client closed" ? /the client is/ : /the connection to NATS is/);
      }
      assert.ok(performance.now() - began < slack);
      for (const later of [order, client.segment("new"), client.snowflake(), client.segment("order", { prefetch: 3 })]) {
        assert.ok((await failure(later.next())) instanceof ClosedError, `${name}, ${state}: a later call`);
      }
      assert.ok((await failure(order.nextN(2))) instanceof ClosedError);
    }
  }
});

test("held IDs are given out by a closed client", async () => {
  const nc = await connect();
  const client = natsid(nc);
  const held = client.segment("closed", { prefetch: 100, maxAge: long });
  const ids = [await held.next()];
  await until("the next range", () => held.stats().held > 50);
  client.close();
  await nc.close();
  while (held.stats().held > 0) ids.push(await held.next());
  assert.ok(ids.length >= 100);
  once(ids, ids.length);
  assert.ok((await failure(held.next())) instanceof ClosedError);
  assert.equal(held.takeSync(), undefined);
});

/** Forwards a port of its own to a server, until its connections are cut. */
async function proxy(to: number) {
  const { connect } = await import("node:net");
  const open = new Set<import("node:net").Socket>();
  const listener = createServer((near) => {
    const far = connect(to, "127.0.0.1");
    for (const [socket, other] of [[near, far], [far, near]] as const) {
      open.add(socket);
      socket.on("data", (data) => other.write(data)).on("error", () => {}).on("close", () => {
        open.delete(socket);
        other.destroy();
      });
    }
  });
  listener.listen(0, "127.0.0.1");
  await event(listener, "listening");
  const { port } = listener.address() as { port: number };
  return {
    url: `127.0.0.1:${port}`,
    cut: () => open.forEach((socket) => socket.destroy()),
    refuse: () => new Promise((closed) => listener.close(closed)),
    accept: () => new Promise<void>((opened) => listener.listen(port, "127.0.0.1", opened)),
  };
}

test("a call goes on when its connection is lost", async () => {
  const desk = await Desk.open();
  const way = await proxy(Number(new URL(server.nats).port));
  const nc = await connect({ servers: way.url, maxReconnectAttempts: -1, reconnectTimeWait: 20, reconnectJitter: 0 });
  const ids = desk.clientOn(nc);
  const order = ids.segment("order");
  await order.next();
  desk.hold();
  const under = [order.next(), order.nextN(20_000)];
  await until("requests", () => desk.held.some(({ n }) => n > 1) && desk.held.some(({ n }) => n === 1));
  const refused = way.refuse();
  way.cut();
  await sleep(100);
  const lost = [order.next(), order.next(), order.nextN(5)];
  desk.script = undefined; // those that are held are lost
  await refused;
  await way.accept();
  const began = performance.now();
  await Promise.all([...under, ...lost]);
  assert.ok(performance.now() - began < slack);
  const large = desk.asked.filter(({ n }) => n === 20_000);
  const after = large[1]!.at - large[0]!.at;
  assert.ok(after < 1900, `what was lost was requested again after ${after} ms, as if it had been taken`);
  void way.refuse();
  await nc.close();
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
