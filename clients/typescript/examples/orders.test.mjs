// Tests of code that draws IDs, with a natsid of their own: `node --test examples/orders.test.mjs`.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { connect } from "@nats-io/transport-node";
import { natsid } from "natsid";
import { start } from "natsid/testing";

const server = await start();
const nc = await connect({ servers: server.nats });
after(async () => {
  await nc.close();
  await server.stop();
});

/** What is tested. */
async function newOrder(ids, item) {
  return JSON.stringify({ id: String(await ids.segment("order").next()), item });
}

test("an order has an ID that JSON does not round", async () => {
  const ids = natsid(nc);
  await newOrder(ids, "tea");
  await server.skip(2n ** 53n); // breaks code that stores IDs as numbers
  const { id } = JSON.parse(await newOrder(ids, "tea"));
  assert.ok(BigInt(id) > 2n ** 53n);
});

test("an order waits for a worker that stands still for a moment", async () => {
  await server.stall(300);
  assert.match(await newOrder(natsid(nc), "tea"), /"id":"\d+"/);
});
