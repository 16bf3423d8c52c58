import assert from "node:assert/strict";
import { test } from "node:test";
import { BusyError, AbortError, type Handle } from "natsid";
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

