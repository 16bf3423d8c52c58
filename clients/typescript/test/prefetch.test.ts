import assert from "node:assert/strict";
import { test } from "node:test";
import { BadRequestError, TimeoutError, UnknownTagError, natsid, type Handle } from "natsid";
import { connect, Desk, failure, long, once, rising, sleep, until } from "./desk.ts";

async function draw(held: Handle, calls: number): Promise<bigint[]> {
  const ids: bigint[] = [];
  for (let i = 0; i < calls; i++) ids.push(await held.next());
  return ids;
}

test("the next range is there before the one in use is used up", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 1000, maxAge: long });
  const ids = await draw(held, 400);
  assert.equal(held.stats().requests, 1, "400 IDs of 1000");
  ids.push(...(await draw(held, 200)));
  await until("the next range is there", () => held.stats().held === 400 + 1000);
  desk.hold(); // while natsid is away, calls get what is held
  ids.push(...(await draw(held, 1400)));
  once(ids, 2000);
  assert.ok((await failure(held.next({ timeout: 10 }))) instanceof TimeoutError);
  desk.issueHeld();
});

test("IDs are taken at once while some are held", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 100, maxAge: long });
  assert.equal(held.takeSync(), undefined);
  await until("a range is there", () => held.stats().held === 100);
  const ids: bigint[] = [];
  for (let id = held.takeSync(); id !== undefined; id = held.takeSync()) ids.push(id);
  assert.deepEqual(ids, Array.from({ length: 100 }, (_, i) => BigInt(i + 1)));
  await until("the next range is there", () => held.stats().held === 100);
  assert.ok(held.takeSync()! > 100n);
});

test("a call for many takes what is held, or else has a request of its own", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 100 });
  await held.next();
  await until("a range is there", () => held.stats().held === 99);
  assert.deepEqual((await held.nextN(30)).runs, [{ first: 2n, last: 31n }]);
  const own = [...(await held.nextN(80))];
  await until("the next range is there", () => held.stats().held === 69 + 100);
  desk.hold();
  once([...own, ...range(1, 31), ...(await held.nextN(150)), ...(await held.nextN(19))], 80 + 31 + 169);
  assert.deepEqual(desk.asked.map(({ n }) => n).sort((a, b) => a - b).slice(0, 3), [80, 100, 100]);
  assert.ok((await failure(held.nextN(1, { timeout: 10 }))) instanceof TimeoutError);
  desk.issueHeld();
  const unused = (await desk.client()).segment("order", { prefetch: 50 });
  await unused.nextN(5);
  await until("a call for many begins to hold", () => unused.stats().held === 50);
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

test("each range is requested once", async () => {
  const desk = await Desk.open();
  const maxAge = 400;
  const held = (await desk.client()).segment("order", { prefetch: 64, maxAge });
  const began = performance.now();
  let ranges = 0;
  for (; performance.now() - began < 2 * maxAge; ranges++) {
    await draw(held, 64);
    await sleep(5);
  }
  // What is too old is discarded, and requested again.
  const most = ranges + 3 + (2 * (performance.now() - began)) / (maxAge / 2);
  const { requests } = held.stats();
  assert.ok(requests <= most, `${requests} requests for ${ranges} ranges`);
});

test("no ID is older than it may be, counted from before it was requested", async () => {
  const desk = await Desk.open();
  const maxAge = 300;
  const held = (await desk.client()).segment("order", { prefetch: 1, maxAge });
  const received = new Map<bigint, number>();
  desk.script = (asked) => { // it takes most of the age to answer
    received.set(desk.last + 1n, performance.now());
    setTimeout(() => desk.issue(asked), 200);
    desk.last++;
    return true;
  };
  desk.issue = ({ msg }) => void msg.respond(String([...received.keys()].at(-1)));
  for (let i = 0; i < 2; i++) {
    await held.next();
    await sleep(maxAge + 50);
    const began = performance.now();
    const id = await held.next();
    const age = began - received.get(id)!;
    assert.ok(age <= maxAge, `ID ${id} was requested ${age} ms before the call`);
  }
});

test("what is too old is discarded, also where nobody asks", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 1000, maxAge: 50 });
  await held.next();
  await until("all is too old", () => held.stats().held === 0);
  const last = desk.last;
  assert.ok((await held.next()) > last);
});

test("in a loop that never waits fewer than 64 IDs are given when they are too old", async () => {
  const desk = await Desk.open();
  const maxAge = 100;
  const held = (await desk.client()).segment("order", { prefetch: 100_000, maxAge });
  let given = 0;
  for (let tries = 0; given <= 64 && tries < 20; tries++) { // a machine that stands still lets all become too old
    await held.next();
    const began = performance.now();
    let late = (given = 0);
    while (held.takeSync() !== undefined) {
      given++;
      if (performance.now() - began > maxAge) late++;
      for (const end = performance.now() + 0.05; performance.now() < end; );
      assert.ok(late < 64, `${late} of ${given} IDs were too old`);
    }
  }
  assert.ok(given > 64);
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

test("a range that nobody uses is not followed", async () => {
  const desk = await Desk.open();
  const held = (await desk.client()).segment("order", { prefetch: 1000, maxAge: 50 });
  await held.next();
  await sleep(400);
  assert.ok(held.stats().requests <= 3, `${held.stats().requests} requests after one call`);
});

test("a range in use is followed before it is too old", async () => {
  const desk = await Desk.open();
  const maxAge = 400;
  const held = (await desk.client()).segment("order", { prefetch: 100_000, maxAge });
  await held.next();
  assert.equal(held.stats().requests, 1);
  await until("the next range", () => held.stats().requests === 2);
  const after = performance.now() - desk.asked[0]!.at;
  assert.ok(after >= maxAge * 0.7, `it is requested after ${after} ms`);
  assert.ok(held.stats().held > 0 || after > maxAge, "it is requested when nothing is held any longer");
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
