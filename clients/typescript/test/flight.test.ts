import assert from "node:assert/strict";
import { test } from "node:test";
import {
  BadRequestError, TimeoutError, NotServedError, ThrottledError, UnavailableError, type NatsidError, natsid,
} from "natsid";
import { start } from "natsid/testing";
import { connect, Desk, failure, long, server, slack, sleep, until } from "./desk.ts";

test("after silence a copy is sent, the first answer counts, and those of others are never used", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  for (const firstIsFirst of [true, false]) {
    desk.hold();
    const began = performance.now();
    const call = order.next();
    await until("a copy", () => desk.held.length >= 2);
    assert.ok(desk.held[1]!.at - began >= 99, `a copy is sent after ${desk.held[1]!.at - began} ms`);
    if (!firstIsFirst) desk.held.reverse();
    const want = desk.last + 1n;
    desk.issueHeld();
    assert.equal(await call, want);
    const next = await order.next();
    assert.ok(next > want + 1n, `${next} is of an answer that came too late`);
  }
  assert.ok(order.stats().hedges >= 2);
});

test("a copy is not sent because this process was busy", async () => {
  const ids = natsid(await connect());
  await ids.segment("busy").next();
  let hedges = 0;
  for (let i = 0; i < 6; i++) {
    const order = ids.segment("busy", { maxBatch: 10 }); // it knows no response times yet
    const call = order.next();
    await Promise.resolve(); // the request leaves with this turn
    await Promise.resolve();
    for (const end = performance.now() + 200; performance.now() < end; ); // natsid answers meanwhile
    await call;
    hedges += order.stats().hedges;
  }
  assert.ok(hedges < 3, `${hedges} copies of 6 requests`); // natsid may be slow where the machine is busy
});

test("silence is not explained by an earlier refusal", async () => {
  const desk = await Desk.open();
  const [one, other] = [(await desk.client()).segment("order"), (await desk.client()).segment("order")];
  // Of the copies of a call some are refused, the first of them, and the call ends with the last one.
  for (const [order, refused, copies, isRefused] of [[one, 1, 2, true], [one, 0, 1, false], [other, 1, 3, false]] as const) {
    const before = desk.asked.length;
    const abort = new AbortController();
    desk.script = (asked, number) => {
      if (number - before === copies) abort.abort();
      return number - before > refused || desk.refuse(asked, 503);
    };
    const { cause } = await failure(order.next({ signal: abort.signal }));
    assert.equal(cause instanceof UnavailableError, isRefused, `${refused} of ${copies}: ${cause}`);
  }
});

test("a lost connection is the reason", async () => {
  const own = await start();
  const nc = await connect({ servers: own.nats, maxReconnectAttempts: -1 });
  const order = natsid(nc).segment("order");
  await order.next();
  await own.stop();
  for await (const { type } of nc.status()) if (type === "reconnecting") break;
  assert.match((await failure(order.next({ timeout: 50 }))).message, /the connection to NATS is lost/);
});

test("copies are a tenth of the requests, but for the first 200", async () => {
  const desk = await Desk.open();
  const ids = await desk.client({ timeout: 3000 });
  const order = ids.segment("order");
  desk.script = () => true; // takes requests and answers none
  const calls = Array.from({ length: 100 }, () => failure(order.nextN(1)));
  assert.ok((await Promise.all(calls)).every((error) => error instanceof TimeoutError));
  const { requests, hedges } = order.stats();
  assert.equal(requests, 100);
  const most = 200 + requests / 10 + 4 * 3 + 4;
  assert.ok(hedges > 100 && hedges <= most, `${hedges} copies of ${requests} requests, want ${most} at most`);
});

test("refused copies are sent ever more seldom", async () => {
  const desk = await Desk.open();
  const ids = await desk.client();
  for (const [code, kind] of [[503, UnavailableError], [429, ThrottledError]] as const) {
    desk.script = (asked) => desk.refuse(asked, code);
    const before = desk.asked.length;
    const began = performance.now();
    const error = await failure(ids.segment("order").next({ timeout: 1500 }));
    assert.ok(error instanceof TimeoutError && error.cause instanceof kind, `${error}`);
    assert.match(error.message, /because/);
    // Pauses of 0, 10, 20, 40, 80 and 160 ms at least, and then 250 ms.
    const most = 7 + (performance.now() - began) / 250;
    const asked = desk.asked.length - before;
    assert.ok(asked >= 2 && asked <= most, `${code}: asked ${asked} times, want 2 to ${most}`);
  }
});

test("a call goes on until a worker can issue", async () => {
  const desk = await Desk.open();
  for (const code of [503, 429, 0]) {
    for (const bad of [1, 2, 4]) {
      const ids = await desk.client();
      const before = desk.asked.length;
      desk.script = (asked, number) => number <= before + bad && (code === 0 || desk.refuse(asked, code));
      await ids.snowflake().next();
      assert.ok(desk.asked.length > before + bad, `${code} ${bad}`);
    }
  }
});

test("a worker that throttles is left alone for as long as it says", async () => {
  const desk = await Desk.open();
  const nc = await connect();
  const order = desk.clientOn(nc).segment("order");
  const pause = 1500;
  let refused = 0;
  desk.script = (asked) => {
    if (refused > 0) return false;
    refused = performance.now();
    return desk.refuse(asked, 429, { "Natsid-Retry-After-Ms": String(pause) });
  };
  const first = order.next();
  await until("a refusal", () => refused > 0);
  await desk.flush();
  await nc.flush(); // the refusal has arrived
  const before = desk.asked.length;
  await Promise.all([first, order.next(), order.nextN(3)]);
  const early = desk.asked.slice(before).filter(({ at }) => at < refused + pause - 5);
  assert.equal(early.length, 0, `asked ${early.map(({ at }) => at - refused)} ms after the refusal`);
});

test("a pause of days ends with the calls that wait", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  desk.script = (asked) => desk.refuse(asked, 429, { "Natsid-Retry-After-Ms": "2147483647" });
  const error = await failure(order.next({ timeout: 300 }));
  assert.ok(error.cause instanceof ThrottledError, `${error}`);
  const began = performance.now();
  await until("its request has ended", () => order.stats().failures === 1);
  assert.ok(performance.now() - began < slack);
});

test("400, 404, 409, 410 and 500 are not asked again", async () => {
  const desk = await Desk.open();
  const ids = await desk.client();
  for (const code of [400, 404, 409, 410, 500]) {
    desk.script = (asked) => desk.refuse(asked, code);
    for (const call of [ids.segment("order").next(), ids.segment("order").nextN(2)]) {
      const error = await failure(call) as NatsidError;
      assert.deepEqual(error.refusal, { code, text: "because" });
    }
    assert.equal(ids.segment("order").stats().retries, 0, `${code}`);
  }
});

test("no copy of a large request is sent while nothing is lost, and then as of a small one", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  desk.script = (_, number) => number <= 2;
  const began = performance.now();
  const runs = await order.nextN(10_001);
  assert.equal(runs.length, 10_001);
  assert.ok(desk.asked[1]!.at - began >= 1999, `a copy is sent after ${desk.asked[1]!.at - began} ms`);
  assert.ok(desk.asked[2]!.at - began < 2000 + slack);
});

test("without a worker calls wait for one, or fail at once with failFast", async () => {
  const nc = await connect();
  const waiting = natsid(nc, { namespace: "empty" });
  const error = await failure(waiting.segment("order").next({ timeout: 300 }));
  assert.ok(error instanceof TimeoutError && error.cause instanceof NotServedError, `${error}`);
  assert.match(error.message, /no worker on empty\.segment\.order; does natsid run on this NATS, in this namespace\?/);
  const hasty = natsid(nc, { namespace: "empty", failFast: true, timeout: long });
  const order = hasty.segment("order");
  for (const call of [order.next(), order.nextN(5), hasty.segment("order", { prefetch: 5 }).next()]) {
    assert.ok((await failure(call)) instanceof NotServedError);
  }
});

test("a call is served by a worker that starts while it waits", async () => {
  const call = natsid(await connect(), { namespace: "later" }).segment("order").next({ timeout: long });
  await sleep(200);
  const nc = await connect();
  nc.subscribe("later.segment.order", { queue: "natsid", callback: (_, msg) => void msg.respond("42") });
  assert.equal(await call, 42n);
});

test("faults of natsid cost a call time and no error", async () => {
  const ids = natsid(await connect());
  const order = ids.segment("faults");
  let last = await order.next();
  for (const fault of [
    () => server.stall(300), () => server.refuse(503, 300), () => server.refuse(429, 300),
    () => server.dropReplies(300), () => server.restart(),
  ]) {
    const played = fault();
    for (let i = 0; i < 20; i++) {
      const id = await order.next();
      assert.ok(id > last);
      last = id;
    }
    await played;
  }
});

test("a strict tag is not prefetched", async () => {
  const nc = await connect();
  const create = JSON.stringify({ tag: "strict", strict: true });
  const reply = await nc.request("id.tag.create", create, { timeout: long });
  assert.equal(reply.headers?.get("Nats-Service-Error") ?? "", "");
  const ids = natsid(nc);
  const strict = ids.segment("strict");
  assert.ok(await strict.next() < await strict.next());
  const error = await failure(ids.segment("strict", { prefetch: 10 }).next());
  assert.ok(error instanceof BadRequestError, `${error}`);
});
