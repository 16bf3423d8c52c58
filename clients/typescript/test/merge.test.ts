import assert from "node:assert/strict";
import { test } from "node:test";
import { BusyError, AbortError, UnavailableError, type Handle } from "natsid";
import { Desk, failure, once, sleep, until } from "./desk.ts";

/** Begins calls at once. */
function begin(handle: Handle, calls: number, signal?: AbortSignal): Promise<bigint>[] {
  return Array.from({ length: calls }, () => handle.next(signal && { signal }));
}

/** Has four requests for one ID each hang, so that calls that begin from now on gather. */
async function gather(desk: Desk, handle: Handle): Promise<Promise<bigint>[]> {
  desk.hold();
  const first: Promise<bigint>[] = [];
  for (let n = 1; n <= 4; n++) {
    first.push(handle.next());
    await until("a request under way", () => handle.stats().requests === n);
  }
  return first;
}

test("calls that begin together share one request", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  once(await Promise.all(begin(order, 1000)), 1000);
  assert.ok(desk.asked.every(({ n }) => n === 1000));
  assert.equal(order.stats().requests, 1);
});

test("calls get IDs in the order in which they began", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  const ids = await Promise.all(begin(order, 500));
  assert.deepEqual(ids, Array.from({ length: 500 }, (_, i) => BigInt(i + 1)));
});

test("four requests that hang stall nobody, and the rest share the fifth", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  const first = await gather(desk, order);
  const rest = begin(order, 1000);
  await sleep(60);
  assert.equal(order.stats().requests, 4);
  desk.issueHeld();
  once([...(await Promise.all(first)), ...(await Promise.all(rest))], 1004);
  assert.equal(order.stats().requests, 5);
  assert.equal(order.stats().ids, 1004);
});

test("no call waits for a timer", async (t) => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  await order.next();
  const real = globalThis.setTimeout;
  t.after(() => (globalThis.setTimeout = real));
  globalThis.setTimeout = ((f: () => void) => real(f, 2 ** 30).unref()) as unknown as typeof setTimeout;
  for (let i = 0; i < 100; i++) await order.next();
  for (const together of [10, 1000]) {
    await Promise.all(Array.from({ length: together }, async () => {
      for (let i = 0; i < 10; i++) await order.next();
    }));
  }
});

test("a call gets no ID of a request that was sent before it began", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  let clock = 0;
  const received = new Map<bigint, number>();
  desk.script = (asked) => {
    const now = ++clock;
    setTimeout(() => { // calls begin while it is under way
      for (let i = 1n; i <= BigInt(asked.n); i++) received.set(desk.last + i, now);
      desk.issue(asked);
    }, Math.random() * 3);
    return true;
  };
  await Promise.all(Array.from({ length: 20 }, async () => {
    for (let i = 0; i < 40; i++) {
      const began = ++clock;
      const id = await order.next();
      assert.ok(received.get(id)! > began, `a call that began at ${began} got ID ${id} of ${received.get(id)}`);
      await sleep(Math.random() * 3);
    }
  }));
  assert.ok(desk.asked.some(({ n }) => n > 1), "no request was shared");
});

test("a call that gives up before its request is sent leaves no hole", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  const first = await gather(desk, order);
  const call = new AbortController();
  const [stay, gone] = [begin(order, 5), begin(order, 3, call.signal)];
  call.abort();
  for (const promise of gone) assert.ok((await failure(promise)) instanceof AbortError);
  desk.issueHeld();
  once([...(await Promise.all(first)), ...(await Promise.all(stay))], 9);
  assert.equal(order.stats().ids, 9);
});

test("a batch that all calls have left is not sent, and takes no place", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  for (let i = 0; i < 5; i++) {
    const gone = [new AbortController(), new AbortController()].map((call) => {
      const promise = order.next({ signal: call.signal });
      call.abort();
      return promise;
    });
    for (const promise of gone) await failure(promise);
    await sleep(2);
  }
  assert.equal(desk.asked.length, 0);
  assert.equal(await order.next(), 1n);
});

test("more calls than five full requests fail at once, and calls that gave up take no place", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order", { maxBatch: 2 });
  const first = await gather(desk, order);
  for (let i = 0; i < 100; i++) {
    const call = new AbortController();
    const gone = order.next({ signal: call.signal });
    call.abort();
    await failure(gone);
  }
  const rest = begin(order, 6);
  const before = desk.asked.length;
  const error = await failure(order.next());
  assert.ok(error instanceof BusyError, `${error}`);
  assert.equal(desk.asked.length, before);
  desk.issueHeld();
  once([...(await Promise.all(first)), ...(await Promise.all(rest))], 10);
  assert.ok(desk.asked.every(({ n }) => n <= 2));
  await order.next();
});

test("a crowd larger than a request may be is split", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  const first = await gather(desk, order);
  const rest = begin(order, 15_000);
  desk.issueHeld();
  once([...(await Promise.all(first)), ...(await Promise.all(rest))], 15_004);
  assert.ok(desk.asked.every(({ n }) => n <= 10_000));
});

test("a worker's lower limit is obeyed", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  desk.script = (asked) => asked.n > 7 && desk.refuse(asked, 400, { "Natsid-Max-Batch": "7" });
  once(await Promise.all(begin(order, 100)), 100);
  const before = desk.asked.length;
  once(await Promise.all(begin(order, 100)), 100);
  assert.ok(desk.asked.slice(before).every(({ n }) => n <= 7), "the limit is remembered");
});

test("where a request of a batch fails, its calls do, and later calls do not", async () => {
  const desk = await Desk.open();
  const order = (await desk.client({ failFast: true })).segment("order");
  desk.script = (asked) => desk.refuse(asked, 404);
  const errors = await Promise.all(begin(order, 50).map(failure));
  assert.ok(errors.every((error) => error.name === "UnknownTagError"));
  assert.equal(order.stats().requests, 1);
  desk.script = undefined;
  assert.equal(await order.next(), 1n);
});

test("a request that hangs does not delay calls after it until it is answered", async () => {
  const desk = await Desk.open();
  const order = (await desk.client()).segment("order");
  desk.script = (asked) => {
    setTimeout(() => desk.issue(asked), 80);
    return true;
  };
  for (let i = 0; i < 5; i++) await order.next();
  desk.hold();
  const hanging = order.next();
  await until("it is under way", () => desk.held.length > 0);
  const next = order.next();
  await Promise.resolve();
  await Promise.resolve();
  assert.equal(order.stats().requests, 6, "the next call waits a moment for the answer that is due");
  await until("the next request", () => order.stats().requests === 7);
  desk.issueHeld();
  await Promise.all([hanging, next]);
});

test("requests are counted with their copies and failures", async () => {
  const desk = await Desk.open();
  const ids = await desk.client();
  await Promise.all(begin(ids.segment("order"), 10));
  let isRefused = false;
  desk.script = (asked) => !isRefused && (isRefused = desk.refuse(asked, 503));
  await ids.segment("order").nextN(3);
  desk.script = (asked) => desk.refuse(asked, 404);
  await failure(ids.snowflake().next());
  const { usual, hedges, ...counts } = ids.segment("order").stats();
  assert.deepEqual(counts, { ids: 13, requests: 2, retries: 1, failures: 0, held: 0 });
  assert.ok(usual > 0 && hedges >= 0);
  assert.equal(ids.snowflake().stats().failures, 1);
});

test("the causes of an error are found", async () => {
  const desk = await Desk.open();
  const order = (await desk.client({ timeout: 50 })).segment("order");
  desk.script = (asked) => desk.refuse(asked, 503);
  const error = await failure(order.next());
  assert.equal(error.name, "TimeoutError");
  assert.ok(error.cause instanceof UnavailableError && !(error.cause instanceof BusyError));
});
