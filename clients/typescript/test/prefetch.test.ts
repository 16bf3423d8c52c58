import assert from "node:assert/strict";
import { test } from "node:test";
import { BadRequestError, TimeoutError, UnknownTagError, natsid, type Handle } from "natsid";
import { connect, Desk, failure, long, once, rising, until } from "./desk.ts";

async function draw(held: Handle, calls: number): Promise<bigint[]> {
  const ids: bigint[] = [];
  for (let i = 0; i < calls; i++) ids.push(await held.next());
  return ids;
}

test("IDs are taken at once while some are held", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 100, maxAge: long });
  assert.equal(held.takeSync(), undefined);
  const ids: bigint[] = [];
  const take = () => { // it asks again where an answer took long, and no call waited for it
    for (let id = held.takeSync(); id !== undefined; id = held.takeSync()) ids.push(id);
    return ids.length;
  };
  await until("a range is there", () => take() > 0);
  await until("the next range is there", () => take() > 100);
  once(ids, ids.length);
  rising(ids);
});

test("a reply of many runs is given out in its order", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 200, maxAge: long });
  desk.script = ({ msg }, number) => {
    const runs = ["500-564", "000", "100-199", "300-333"];
    return msg.respond(runs.map((run) => run.replaceAll(/\d+/g, (digits) => `${number}${digits}`)).join("\n"));
  };
  const ids = await draw(held, 201);
  const want = [...range(1500, 1564), 1000n, ...range(1100, 1199), ...range(1300, 1333)];
  assert.deepEqual(ids.slice(0, 200), want);
  assert.ok(ids[200]! >= 2500n);
});

function range(first: number, last: number): bigint[] {
  return Array.from({ length: last - first + 1 }, (_, i) => BigInt(first + i));
}

test("calls that wait for a range get its IDs in the order in which they began", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 10, maxAge: long });
  const ids = await Promise.all(Array.from({ length: 95 }, () => held.next()));
  rising(ids);
  assert.ok(held.stats().requests <= 12, `${held.stats().requests} requests`);
});

test("what is too old is discarded, also in a loop that never waits", async () => {
  const desk = await Desk.open();
  const maxAge = 50;
  const held = (await desk.client()).segment("order", { prefetch: 100_000, maxAge });
  await held.next();
  const began = performance.now();
  for (let at = began; held.takeSync() !== undefined; at = performance.now()) {
    assert.ok(at - began < maxAge, "an ID was too old"); // it was given after `at`
  }
  assert.equal(held.stats().held, 0);
});

test("what is held becomes too old while the machine is suspended", async (t) => {
  const desk = await Desk.open();
  const hour = 3_600_000;
  const ids = await desk.client();
  const [held, idle] = [1, 2].map((i) => ids.segment("order", { prefetch: 1000, maxAge: hour - i })) as [
    Handle, Handle,
  ];
  const first = await held.next();
  await idle.next();
  const real = Date.now;
  t.after(() => (Date.now = real));
  let suspended = 59 * 60_000; // the monotonic clock stands still
  Date.now = () => real() + suspended;
  assert.equal((await draw(held, 100)).at(-1), first + 100n);
  suspended = hour;
  const ids64 = await draw(held, 64);
  assert.ok(ids64.at(-1)! > 2000n, `ID ${ids64.at(-1)} was held for an hour`);
  await until("what nobody asks for is discarded, too", () => idle.stats().held === 0);
});

test("a refusal of a range is what its calls get, and they are not repeated", async () => {
  const desk = await Desk.open();
  for (const [code, kind] of [[404, UnknownTagError], [400, BadRequestError]] as const) {
    const held = (await desk.client()).segment("order", { prefetch: 10, maxAge: long });
    desk.script = (asked) => desk.refuse(asked, code);
    const errors = await Promise.all([1, 2, 3].map(() => failure(held.next())));
    assert.ok(errors.every((error) => error instanceof kind));
    for (let i = 0; i < 1000; i++) assert.equal(held.takeSync(), undefined);
    const { requests, retries } = held.stats();
    assert.deepEqual([requests, retries], [1, 0], "calls that wait for nothing ask at once again");
    desk.script = undefined;
    await held.next();
  }
});

test("a call that no range reaches in time ends", async () => {
  const desk = await Desk.open();
  const held = (await desk.client({ timeout: 200 })).segment("order", { prefetch: 10, maxAge: 5 });
  desk.script = (asked) => {
    setTimeout(() => desk.issue(asked), 10); // what comes is too old already
    return true;
  };
  assert.ok((await failure(held.next())) instanceof TimeoutError);
});

test("held IDs of natsid are given once, also beside other calls", async () => {
  const ids = natsid(await connect());
  const order = ids.segment("held");
  const held = ids.segment("held", { prefetch: 50, maxAge: 20 });
  const all = await Promise.all(Array.from({ length: 8 }, async (_, i) => {
    const ids: bigint[] = [];
    for (let k = 0; k < 300; k++) {
      ids.push(i === 0 ? await order.next() : await held.next());
      const id = i === 1 ? held.takeSync() : undefined;
      if (id !== undefined) ids.push(id);
    }
    return ids;
  }));
  once(all.flat(), all.flat().length);
});
