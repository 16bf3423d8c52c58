import type { MsgHdrs } from "@nats-io/nats-core";
import { Call, Deadline, type CallOptions, type Owner } from "./call.js";
import type { NatsidError } from "./errors.js";
import { Flight, type Answer, type Launcher } from "./flight.js";
import { Runs, type Run } from "./runs.js";
import { now, type Target } from "./target.js";

/** For how many ms after a failed request no other is sent, unless a call waits. */
const quietFor = 50;

/**
 * The IDs of one request that no call has got. They are too old when maxAge has passed by either clock since before the
 * request: the monotonic clock stands still while a machine is suspended. A wall clock that is set ahead makes a hole,
 * and one that is set back changes nothing.
 */
interface Range {
  runs: Run[];
  size: number;
  /** When the IDs are too old, by the monotonic clock. */
  until: number;
  /** The same by the wall clock. */
  by: number;
}

/** Holds IDs for future calls. Each ID is given once, and no two replies of natsid hold the same ID. */
export class Stock implements Owner, Launcher {
  readonly #target: Target;
  readonly #header: MsgHdrs;
  readonly #n: number;
  readonly #maxAge: number;
  readonly #deadline: Deadline;
  /** In the order of their requests. */
  #ranges: Range[] = [];
  /** What the answer to the request under way will be; undefined if there is none. */
  #asked: Range | undefined;
  /** Until then no request is sent unless a call waits, since the last one failed. */
  #quietUntil = -Infinity;
  #calls: Call<bigint>[] = [];
  #waiting = 0;

  constructor(target: Target, n: number, maxAge: number, header: MsgHdrs) {
    this.#target = target;
    this.#n = n;
    this.#maxAge = maxAge;
    this.#header = header;
    this.#deadline = new Deadline(target.settings.timeout, () => this.#calls);
  }

  /** Returns an ID that is held; undefined if none is. */
  take(): bigint | undefined {
    return this.#holds(1) ? this.#pop(1).first : undefined;
  }

  /** Returns n IDs that are held; undefined if there are fewer: a part would become too old while the rest is requested. */
  takeN(n: number): Runs | undefined {
    if (!this.#holds(n)) return undefined;
    const runs: Run[] = [];
    for (let left = n; left > 0; ) {
      const run = this.#pop(left);
      runs.push(run);
      left -= Number(run.last - run.first) + 1;
    }
    return new Runs(runs, n);
  }

  /** Returns an ID that is held, or waits for the next range. */
  next(options: CallOptions | undefined): Promise<bigint> {
    if (options?.signal?.aborted) return Promise.reject(this.#target.gaveUp(options.signal, true));
    const id = this.take();
    if (id !== undefined) return Promise.resolve(id);
    const call = new Call<bigint>(this.#target, this, options);
    this.#calls.push(call);
    this.#waiting++;
    this.#ask();
    if (options?.timeout === undefined) this.#deadline.watch();
    return call.promise;
  }

  /** Discards IDs that are too old, and returns how many are held. */
  held(): number {
    this.#ranges = this.#ranges.filter((range) => timeLeft(range) > 0);
    return this.#ranges.reduce((sum, range) => sum + range.size, 0);
  }

  gaveUp(): void {
    this.#waiting--;
  }

  /**
   * Reports whether n IDs are held, and requests the next range if it is due: when the call leaves a half, or the newest
   * range has a quarter of its age left. A call for more than is held uses none.
   */
  #holds(n: number): boolean {
    const held = this.held();
    const rest = n <= held ? held - n : held;
    const isDue = rest <= this.#n / 2 || timeLeft(this.#ranges.at(-1)!) < this.#maxAge / 4;
    if (isDue && (this.#waiting > 0 || now() > this.#quietUntil)) this.#ask();
    return held >= n;
  }

  /** Removes up to `most` held IDs, of which there is one at least, and returns them. */
  #pop(most: number): Run {
    const range = this.#ranges[0]!;
    const { first, last } = range.runs[0]!;
    const size = Math.min(most, Number(last - first) + 1);
    const run = { first, last: first + BigInt(size - 1) };
    range.size -= size;
    if (run.last < last) range.runs[0] = { first: run.last + 1n, last };
    else range.runs.shift();
    if (range.size === 0) this.#ranges.shift();
    return run;
  }

  /** Sends a request unless one is under way. */
  #ask(): void {
    if (this.#asked) return;
    this.#asked = { runs: [], size: this.#n, until: now() + this.#maxAge, by: Date.now() + this.#maxAge };
    new Flight(this.#target, this.#n, this.#header, this).launch();
  }

  /** Reports whether a call waits, or IDs are held that the answer would follow. */
  isWanted(): boolean {
    return this.#waiting > 0 || this.held() > 0;
  }

  land({ runs, error }: Answer): void {
    const range = this.#asked!;
    this.#asked = undefined;
    if (error) this.#fail(error);
    if (runs) this.#ranges.push({ ...range, runs: [...runs.runs] });
    this.#serve();
  }

  /** Gives held IDs to the calls that wait, in the order in which they began; requests more if there are too few. */
  #serve(): void {
    let served = 0;
    for (const call of this.#calls) {
      if (!call.ended) {
        const id = this.take();
        if (id === undefined) break;
        call.resolve(id);
        this.#waiting--;
      }
      served++;
    }
    this.#calls.splice(0, served);
  }

  #fail(error: NatsidError): void {
    const calls = this.#calls;
    this.#calls = [];
    this.#waiting = 0;
    this.#quietUntil = now() + quietFor;
    for (const call of calls) call.reject(error);
  }
}

function timeLeft(range: Range): number {
  return Math.min(range.until - now(), range.by - Date.now());
}
