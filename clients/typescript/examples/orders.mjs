// An HTTP service that gives each order an ID: `node examples/orders.mjs nats://127.0.0.1:4222`, then
// `curl -d '{"item":"tea"}' http://127.0.0.1:8000/orders`. Calls that overlap share requests.
import { createServer } from "node:http";
import { json } from "node:stream/consumers";
import { connect } from "@nats-io/transport-node";
import { TimeoutError, natsid } from "natsid";

const [servers = "nats://127.0.0.1:4222", port = "8000"] = process.argv.slice(2);
const nc = await connect({
  servers, pingInterval: 1000, maxPingOut: 1, maxReconnectAttempts: -1, reconnectTimeWait: 100,
});
const order = natsid(nc).segment("order");

const server = createServer(async (request, response) => {
  try {
    const { item } = await json(request);
    const id = await order.next({ timeout: 2000 });
    response.end(`${JSON.stringify({ id: String(id), item })}\n`); // JSON has no bigint: an ID is a string in it
  } catch (error) {
    response.statusCode = error instanceof TimeoutError ? 503 : 500;
    response.end(`${JSON.stringify({ error: error.message })}\n`);
  }
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/orders`));

process.once("SIGTERM", async () => {
  server.close();
  await nc.drain();
});
