// Runs in the browser of browser.test.ts, and posts what it found.
import { wsconnect } from "@nats-io/nats-core";
import { decode, natsid, TimeoutError } from "natsid";

const websocket = new URLSearchParams(location.search).get("nats");

async function draw() {
  const nc = await wsconnect({ servers: websocket });
  const ids = natsid(nc);
  const order = ids.segment("page");
  const found = { shared: (await Promise.all(Array.from({ length: 500 }, () => order.next()))).map(String) };
  found.requests = order.stats().requests;
  found.run = [...(await order.nextN(1000))].map(String);
  const held = ids.segment("page", { prefetch: 200 });
  found.held = [];
  for (let i = 0; i < 300; i++) found.held.push(String(held.takeSync() ?? (await held.next())));
  found.year = decode(await ids.snowflake().next()).time.getUTCFullYear();
  found.refused = await order.nextN(0).catch((error) => error instanceof RangeError && error.message);
  const nobody = natsid(nc, { namespace: "nobody" }).segment("page");
  found.waited = await nobody.next({ timeout: 200 }).catch((error) => error instanceof TimeoutError);
  found.aborted = await nobody.next({ signal: AbortSignal.timeout(100) }).catch((error) => error.name);
  await nc.close();
  found.closed = await order.next().catch((error) => error.name);
  return found;
}

draw()
  .catch((error) => ({ error: String(error.stack ?? error) }))
  .then((found) => fetch("/found", { method: "POST", body: JSON.stringify(found) }));
