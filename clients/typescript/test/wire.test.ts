import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { BadRequestError, decode, natsid, parseID, TagExistsError } from "natsid";
import { connect, Desk, failure, once, rising, server } from "./desk.ts";

// deno-lint-ignore no-explicit-any
type Case = Record<string, any>;

/** Returns the cases that Go's package client has made. */
function vectors(name: string): Case[] {
  const file = new URL(`../../../proof/conformance/vectors/${name}.json`, import.meta.url);
  return JSON.parse(readFileSync(file, "utf8")).cases;
}

test("natsid gives IDs of tags and snowflakes as bigints", async () => {
  const nc = await connect();
  const ids = natsid(nc);
  const order = ids.segment("order");
  const all = [await order.next(), ...(await order.nextN(5)), await order.next()];
  assert.ok(all.length === 7 && all.every((id) => typeof id === "bigint"));
  rising(all);
  const flake = await ids.snowflake().next();
  const { time, sequence } = decode(flake);
  assert.ok(Math.abs(time.getTime() - Date.now()) < 60_000, `${time}`);
  assert.equal(typeof sequence, "bigint");
  const some = await order.nextN(2500);
  assert.equal(some.length, 2500);
  once([...some], 2500);
});

test("handles with equal options are one", async () => {
  const ids = natsid(await connect());
  assert.equal(ids.segment("order"), ids.segment("order"));
  assert.equal(ids.snowflake(), ids.snowflake({ business: 0 }));
  assert.equal(ids.snowflake({ business: 3 }), ids.snowflake({ business: 3n }));
  assert.notEqual(ids.snowflake({ business: 3 }), ids.snowflake());
  assert.equal(ids.segment("order", { maxBatch: 5 }), ids.segment("order", { maxBatch: 5 }));
  assert.notEqual(ids.segment("order", { maxBatch: 5 }), ids.segment("order"));
  assert.equal(ids.segment("order", { prefetch: 0, maxAge: 0, maxBatch: 10_000 }), ids.segment("order"));
  assert.throws(() => ids.segment("order", { maxAge: 5 }), /maxAge without prefetch: no IDs are held/);
  assert.throws(() => ids.segment("order", { maxBatch: -1 }), /maxBatch is -1, want at least 0/);
});

test("a request has the subject, body and headers of the wire", async () => {
  const desk = await Desk.open();
  const ids = await desk.client();
  const heard = new Set<string>(); // where the machine is busy, a copy may follow
  desk.script = ({ msg }) => {
    const { subject, headers } = msg;
    heard.add([subject.replace(desk.namespace, "id"), msg.string(), headers?.get("Natsid-Prefetch")].join("|"));
    return false;
  };
  await ids.segment("shop/order.1").next();
  await ids.segment("order").nextN(1);
  await ids.segment("order").nextN(7);
  await ids.snowflake().next();
  await ids.snowflake({ business: 12 }).nextN(2);
  await ids.segment("order", { prefetch: 3, maxAge: 1500 }).next();
  assert.deepEqual([...heard].slice(0, 6), [
    "id.segment.shop/order.1||",
    "id.segment.order||",
    "id.segment.order|7|",
    "id.snowflake||",
    "id.snowflake.12|2|",
    "id.segment.order|3|1.5s",
  ]);
  const other = await Desk.open();
  await (await other.client()).segment("order").next();
  assert.equal(other.asked[0]!.msg.headers, undefined, "a request has no headers");
});

test("layouts of the vectors are decoded or refused as Go does", () => {
  for (const { name, layout, id, parts, error } of vectors("layouts")) {
    if (error) {
      assert.throws(() => decode(id, layout), (e: Error) => {
        assert.ok(e instanceof RangeError);
        assert.equal(e.message.replace(/^natsid:/, "subjects:"), error, name);
        return true;
      });
      continue;
    }
    for (const { time, ...got } of [decode(id, layout), decode(BigInt(id), layout)]) {
      const entries = Object.entries(got).map(([key, value]) => [key, typeof value === "bigint" ? `${value}` : value]);
      assert.deepEqual(Object.fromEntries(entries), parts, name);
      assert.equal(time.getTime(), Number(got.timeMs), name);
    }
  }
  const epoch = Date.UTC(2026, 0, 1);
  assert.equal(decode(1n << 22n, { time: 41, machine: 10, sequence: 12, epoch }).time.getTime(), epoch + 1);
  for (const wrong of [{ unit: 0 }, { epoch: -1 }, { site: 22 }, { time: 0 }, { time: 62, machine: 1, sequence: 0 }]) {
    const layout = { time: 30, machine: 10, sequence: 12, ...wrong };
    assert.throws(() => decode(1n, layout), RangeError, JSON.stringify(wrong));
  }
});

test("an ID has one spelling", () => {
  assert.equal(parseID("9223372036854775807"), 2n ** 63n - 1n);
  assert.equal(parseID("0"), 0n);
  for (const wrong of ["", " 1", "1n", "01", "-1", "+1", "1.0", "1e3", "0x10", "9223372036854775808", "٣"]) {
    assert.throws(() => parseID(wrong), RangeError, wrong);
  }
});

test("a number is returned where it is exact, and refused where it is not", async () => {
  const desk = await Desk.open();
  const ids = await desk.client();
  const order = ids.segment("order");
  desk.last = 2n ** 53n - 2n;
  assert.equal(await order.nextNumber(), Number.MAX_SAFE_INTEGER);
  await assert.rejects(order.nextNumber(), RangeError);
  const held = ids.segment("order", { prefetch: 2 });
  await assert.rejects(held.nextNumber(), /above 2\^53-1/);
});

test("business, namespace and tag are refused before anything is sent", async () => {
  const nc = await connect();
  const before = nc.stats().outMsgs;
  const ids = natsid(nc);
  for (const business of [-1, 1.5, NaN, Infinity]) {
    assert.throws(() => ids.snowflake({ business }), RangeError, `${business}`);
  }
  for (const namespace of ["", "a b", "a.b", "ä", "a".repeat(33)]) {
    assert.throws(() => natsid(nc, { namespace }), RangeError, namespace);
  }
  // deno-lint-ignore no-explicit-any
  for (const wrong of [undefined, null, {}, connect()] as any[]) {
    assert.throws(() => natsid(wrong), /^TypeError: natsid: want a connection to NATS, as connect\(\) returns once/);
  }
  // deno-lint-ignore no-explicit-any
  assert.throws(() => ids.segment(7 as any), new TypeError("natsid: the tag is of type number, want a string"));
  assert.equal(nc.stats().outMsgs, before);
  const none = await failure(natsid(await connect()).snowflake({ business: 1 }).next());
  assert.ok(none instanceof BadRequestError, "the layout of the workers has no business");
});

test("a count above the limit of a request is split", async () => {
  const order = natsid(await connect()).segment("split");
  for (const requests of [1 + 3, 1 + 3 + 3]) {
    once([...(await order.nextN(250_000))], 250_000);
    assert.equal(order.stats().requests, requests);
  }
});

test("IDs above 2^53 arrive exactly", async () => {
  const ids = natsid(await connect());
  await ids.segment("large").next();
  await server.skip(2n ** 53n);
  const a = await ids.segment("large").next();
  const b = await ids.segment("large").next();
  rising([2n ** 53n, a, b]);
  assert.ok(b - a < 10n, "it was rounded");
});

test("a tag is created unless there is one that agrees", async () => {
  const ids = natsid(await connect());
  const settings = { start: 500n, step: 7, period: "daily", zone: "Asia/Shanghai", maxHole: 100 } as const;
  for (let i = 0; i < 2; i++) await ids.ensureTag("ensured", { step: 7, start: 500n, description: "tea" });
  for (let i = 0; i < 2; i++) await ids.ensureTag("dated", { ...settings, start: 0 });
  rising([499n, await ids.segment("ensured").next(), 600n]);
  await ids.ensureTag("ensured");
  await ids.ensureTag("ensured", { start: 501, strict: false });
  for (const [differs, text] of [
    [{ step: 8 }, /its step is "7", not "8"/], [{ start: 10_000 }, /its next ID is "\d+", not "10000"/], [{ strict: true }, /its strict/],
    [{ maxHole: 5 }, /its max_hole is "", not "5"/], [{ period: "daily" }, /its period/],
  ] as const) {
    const error = await failure(ids.ensureTag("ensured", differs));
    assert.ok(error instanceof TagExistsError && text.test(error.message), `${error}`);
  }
  assert.ok((await failure(ids.ensureTag("dated", { period: "daily" }))) instanceof TagExistsError, "its zone is UTC");
  await assert.rejects(ids.ensureTag("a b"), RangeError);
  assert.ok((await failure(ids.ensureTag("wrong", { step: -1 }))) instanceof BadRequestError);
  const nobody = natsid(await connect(), { namespace: "nobody" });
  assert.equal((await failure(nobody.ensureTag("order"))).name, "NotServedError");
});
