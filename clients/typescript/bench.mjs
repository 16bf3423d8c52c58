// Measures the client beside bare requests on the same connection, and prints a table: `npm run bench`.
//
// The compared ways take turns in one process. A natsid with its own NATS server, NATSID_BIN, runs beside it.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { connect } from "@nats-io/transport-node";
import { natsid } from "natsid";

const repeats = 10;
const subject = "id.segment.bench";

/** Starts natsid, and returns the URL of its NATS server. */
async function start(dir) {
  const child = spawn(process.env.NATSID_BIN ?? "natsid", ["--listen", "127.0.0.1:0", "--http", "", "--data", dir], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  for await (const line of createInterface(child.stdout)) {
    const [url] = /nats:\/\/[\d.:]+/.exec(line) ?? [];
    if (url) return { url, child };
  }
  throw new Error("natsid did not start");
}

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** Measures two ways in turn, first the one, then the other first. */
async function inTurn(one, other) {
  const all = [[], []];
  for (let i = 0; i < repeats; i++) {
    for (const k of i % 2 === 0 ? [0, 1] : [1, 0]) all[k].push(await [one, other][k]());
  }
  return all;
}

/** Returns the calls per second of so many callers, who call again and again for 300 ms. */
async function rate(callers, call) {
  const began = performance.now();
  let calls = 0;
  await Promise.all(Array.from({ length: callers }, async () => {
    for (; performance.now() - began < 300; calls++) await call();
  }));
  return (calls / (performance.now() - began)) * 1000;
}

/** Returns the median time of 2000 calls of one caller, in µs. */
async function latency(call) {
  const took = [];
  for (let i = 0; i < 2000; i++) {
    const began = performance.now();
    await call();
    took.push(performance.now() - began);
  }
  return median(took) * 1000;
}

const n = 100_000; // IDs of a range, and of one measurement

/** Waits until so many IDs are held. */
async function fill(held, least = n - 1) {
  while (held.stats().held < least) {
    held.takeSync(); // so the next range is requested
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** Returns how many IDs per second are taken from a range, awaited. */
async function awaited(held) {
  await fill(held);
  const began = performance.now();
  for (let i = 0; i < n - 1; i++) await held.next();
  return ((n - 1) / (performance.now() - began)) * 1000;
}

/** The same without waiting. */
async function taken(held) {
  await fill(held);
  let last;
  const began = performance.now();
  for (let i = 0; i < n - 1; i++) last = held.takeSync();
  const took = performance.now() - began;
  if (last === undefined) throw new Error("the range was used up");
  return ((n - 1) / took) * 1000;
}

/** Returns how many bytes of the heap a call of f takes, in the runs that no collection of garbage met. */
async function bytes(prepare, f) {
  const all = [];
  for (let i = 0; i < 50; i++) {
    await prepare();
    const before = process.memoryUsage().heapUsed;
    for (let k = 0; k < 10_000; k++) f();
    const grown = process.memoryUsage().heapUsed - before;
    if (grown > 0) all.push(grown / 10_000);
  }
  return median(all);
}

/** A counter of bigints, which allocates one at each step. */
class Counter {
  next = 2n ** 40n;

  take() {
    return this.next++;
  }
}

const rows = [];

function row(what, value, beside, ratios) {
  const ratio = ratios
    ? `${median(ratios).toFixed(2)} (${Math.min(...ratios).toFixed(2)}-${Math.max(...ratios).toFixed(2)})`
    : "";
  rows.push([what, value, beside, ratio]);
}

const ratiosOf = ([ours, bare]) => ours.map((value, i) => value / bare[i]);

const dir = mkdtempSync(join(tmpdir(), "natsid-bench-"));
const { url, child } = await start(dir);
const nc = await connect({ servers: url });
try {
  const order = natsid(nc).segment("bench");
  const bare = () => nc.request(subject, "", { timeout: 5000 });
  const next = () => order.next();
  for (const call of [bare, next]) await rate(1000, call); // warm up

  const many = await inTurn(() => rate(1000, next), () => rate(1000, bare));
  row("1,000 callers, IDs/s", Math.round(median(many[0])), Math.round(median(many[1])), ratiosOf(many));
  await latency(bare);
  await latency(next);
  const one = await inTurn(() => latency(next), () => latency(bare));
  row("one caller, median in µs", median(one[0]).toFixed(0), median(one[1]).toFixed(0), ratiosOf(one));

  const held = natsid(nc).segment("bench", { prefetch: n, maxAge: 600_000 });
  await held.next();
  for (let i = 0; i < 5; i++) await awaited(held); // warm up
  for (let i = 0; i < 5; i++) await taken(held);
  const [awaits, takes] = await inTurn(() => awaited(held), () => taken(held));
  row("prefetched, awaited, million IDs/s", (median(awaits) / 1e6).toFixed(1), "", undefined);
  row("prefetched, takeSync, million IDs/s", (median(takes) / 1e6).toFixed(1), "", undefined);

  const counter = new Counter();
  const [ours, least] = [
    await bytes(() => fill(held, 20_000), () => held.takeSync()),
    await bytes(async () => {}, () => counter.take()),
  ];
  row("takeSync, bytes of heap per ID; a counter of bigints", ours.toFixed(1), least.toFixed(1), undefined);
} finally {
  await nc.close();
  child.kill("SIGTERM");
  await once(child, "exit");
  rmSync(dir, { recursive: true, force: true });
}

console.log(`Node.js ${process.versions.node}, ${repeats} repeats\n`);
const table = [["", "natsid", "bare", "/bare"], ["---", "---:", "---:", "---:"], ...rows];
console.log(table.map((cells) => `| ${cells.join(" | ")} |`).join("\n"));
