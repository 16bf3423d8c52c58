import assert from "node:assert/strict";
import { test } from "node:test";
import { ThrottledError, UnavailableError, natsid } from "natsid";
import { start } from "natsid/testing";
import { connect, Desk, failure, server, slack, until } from "./desk.ts";

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

