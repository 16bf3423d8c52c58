import { connect } from "@nats-io/transport-node";
import { natsid, decode } from "./dist/index.js";
const nc = await connect({ servers: "127.0.0.1:14222" });
const ids = natsid(nc);
const order = ids.segment("order");
console.log(await order.next(), [...await order.nextN(3)], (await order.nextN(1000)).runs);
const s = await ids.snowflake().next();
console.log(s, decode(s));
await order.nextNumber().then(console.log);
await ids.snowflake().nextNumber().catch((e) => console.log(e.message));
for (const f of [() => ids.segment("a b").next(), () => ids.segment("ä").next(), () => order.nextN(0), () => order.nextN(1000000), () => order.next({signal: AbortSignal.abort()}), () => order.prefetch({n: 1, maxAge: 1e9}).next(), () => ids.snowflake({business: 5}).next()])
  await f().catch((e) => console.log(e.name, e.message, e.refusal));
async function burst(n, each, f) { const t = performance.now(); await Promise.all(Array.from({length: n}, async () => { for (let i = 0; i < each; i++) await f(); })); return n * each / (performance.now() - t) / 1e3; }
for (let r = 0; r < 3; r++) {
  console.log("merged M/s", (await burst(1000, 1000, () => order.next())).toFixed(3), "bare", (await burst(1000, 20, () => nc.request("id.segment.order"))).toFixed(4));
}
const held = order.prefetch({ n: 100000, maxAge: 60000 });
await held.next();
for (let r = 0; r < 5; r++) {
  let t = performance.now(); const n = 2e6; for (let i = 0; i < n; i++) await held.next(); console.log("awaited M/s", (n / (performance.now() - t) / 1e3).toFixed(2));
}
for (let r = 0; r < 5; r++) {
  await new Promise(r => setTimeout(r, 100)); await held.next();
  let t = performance.now(), k = 0; for (;;) { if (held.takeSync() === undefined) break; k++; } console.log(k, "sync M/s", (k / (performance.now() - t) / 1e3).toFixed(2));
}
console.log(order.stats(), held.stats());
await nc.close();
