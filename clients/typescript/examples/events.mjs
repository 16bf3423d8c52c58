// Gives a million events a snowflake each, from memory: `node examples/events.mjs nats://127.0.0.1:4222`.
import { connect } from "@nats-io/transport-node";
import { decode, natsid } from "natsid";

const nc = await connect({ servers: process.argv[2] ?? "nats://127.0.0.1:4222" });
const flake = natsid(nc).snowflake({ prefetch: 100_000, maxAge: 1000 });

const began = performance.now();
let last;
for (let event = 0; event < 1_000_000; event++) {
  last = flake.takeSync() ?? (await flake.next()); // waits only where nothing is held
}
const took = (performance.now() - began) / 1000;
console.log(`1000000 events in ${took.toFixed(2)} s, the last with ID ${last} of ${decode(last).time.toISOString()}`);
await nc.close();
