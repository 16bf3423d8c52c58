import { maxID } from "./id.js";
import { bytes, excerpt } from "./text.js";

/** Consecutive IDs, from first to last, both included. */
export interface Run {
  readonly first: bigint;
  readonly last: bigint;
}

/** The IDs of one reply, in its order: as disjoint runs, and one after the other by `for (const id of runs)`. */
export class Runs implements Iterable<bigint> {
  /** The runs. */
  readonly runs: readonly Run[];
  /** The number of IDs. */
  readonly length: number;

  /** @internal */
  constructor(runs: readonly Run[], length: number) {
    this.runs = runs;
    this.length = length;
  }

  *[Symbol.iterator](): Generator<bigint, void, undefined> {
    for (const { first, last } of this.runs) {
      for (let id = first; id <= last; id++) yield id;
    }
  }
}

// Of a run in a reply: two IDs, a hyphen and a newline.
const lineBytes = 40;
const line = /^(0|[1-9]\d{0,18})(?:-([1-9]\d{0,18}))?$/;
const utf8 = new TextDecoder();

/** @internal Reads a reply to a request for n IDs. Throws an Error that names the fault of one that is not natsid's. */
export function parseRuns(body: Uint8Array, n: number): Runs {
  if (body.length > n * lineBytes) throw new Error(`it has ${body.length} bytes, more than ${n} IDs need`);
  const runs = utf8.decode(body).split("\n").map(parseRun);
  let left = BigInt(n);
  for (const { first, last } of runs) {
    if (first < 1n) throw new Error(`it holds the ID ${first}, and IDs begin at 1`);
    left -= last - first + 1n;
    if (left < 0n) throw new Error(`it holds more than the ${n} IDs requested`);
  }
  if (left > 0n) throw new Error(`it holds ${BigInt(n) - left} of the ${n} IDs requested`);
  if (overlap(runs)) throw new Error("it holds an ID twice");
  return new Runs(runs, n);
}

function parseRun(text: string, i: number): Run {
  const found = line.exec(text);
  const first = BigInt(found?.[1] ?? -1);
  const last = BigInt(found?.[2] ?? first);
  if (!found || first > maxID || last > maxID || (found[2] !== undefined && last <= first)) {
    throw new Error(`line ${i + 1} of the reply is ${excerpt(bytes(text), 24)}, not a run of IDs`);
  }
  return { first, last };
}

function overlap(runs: readonly Run[]): boolean {
  if (runs.length < 2) return false;
  const sorted = runs.toSorted((a, b) => (a.first < b.first ? -1 : 1));
  return sorted.some((run, i) => i > 0 && sorted[i - 1]!.last >= run.first);
}
