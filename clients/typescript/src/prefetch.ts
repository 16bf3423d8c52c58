import type { MsgHdrs } from "@nats-io/nats-core";
import { Call, Deadline, type CallOptions, type Owner } from "./call.js";
import type { NatsidError } from "./errors.js";
import { Flight, type Answer, type Launcher } from "./flight.js";
import { Runs, type Run } from "./runs.js";
import { now, type Target } from "./target.js";
import { after, type Timer } from "./timer.js";

/**
 * The number of IDs between two looks at both clocks, since the timer is late if the process was paused. The same look
 * sees whether the next request is due.
 */
const lookEvery = 64;
/**
 * The interval of extra looks at a range's age in ms: the timer for its end stands still while a machine is suspended,
 * and 64 calls may take long.
 */
const wakeEvery = 5000;
/** How long after a request failed calls that wait for nothing send no other, in ms. */
const quietFor = 50;

/**
 * The IDs of one request. They are too old when maxAge has passed by either clock: the monotonic clock stands still
 * while a machine is suspended, and timers with it. A wall clock that is set ahead makes a hole, and one that is set
 * back changes nothing.
 */
interface Range {
  runs: readonly Run[];
  /** The run to open after the one in use. */
  at: number;
  /** IDs of the run in use that are not in the stock's window. They follow that. */
  rest: number;
  /** When the IDs are too old, by the monotonic clock. */
  until: number;
  /** The same by the wall clock. */
  by: number;
  /** How long before that the next range is requested; 0 after that. */
  follow: number;
  /** IDs that no call has got, and that are not in the stock's window. */
  left: number;
  timer: Timer | undefined;
}

function timeLeft(range: Range): number {
  return Math.min(range.until - now(), range.by - Date.now());
}

/** Holds IDs for future calls. Each ID is given once, and no two replies of natsid hold the same ID. */
export class Stock implements Owner, Launcher {
  readonly #target: Target;
  readonly #header: MsgHdrs;
  readonly #n: number;
  readonly #maxAge: number;
  readonly #deadline: Deadline;
  // The window: so many IDs of one range, from the next on, are given without a look at both clocks.
  #from: Range | undefined;
  #next = 0n;
  #open = 0;
  #until = 0;
  /** The ranges to draw from, in order. */
  #ranges: Range[] = [];
  #isAsking = false;
  /** Until then no call without patience sends a request, since the last one failed. */
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
    if (this.#open === 0 && !this.#look()) return undefined;
    this.#open--;
    return this.#next++;
  }

  /**
   * Returns n IDs that are held; undefined if there are fewer, and then requests a range if one would do. It never
   * returns a part: that would become too old while the rest is requested.
   */
  takeN(n: number): Runs | undefined {
    this.#dropSpent();
    if (this.held() < n) {
      if (n <= this.#n && now() > this.#quietUntil) this.#ask();
      return undefined;
    }
    const runs: Run[] = [];
    for (let left = n, count: number; left > 0; left -= count) {
      if (this.#open === 0 && !this.#look()) return undefined; // the rest has become too old
      count = Math.min(left, this.#open);
      const first = runs.at(-1)?.last === this.#next - 1n ? runs.pop()!.first : this.#next;
      this.#next += BigInt(count);
      this.#open -= count;
      runs.push({ first, last: this.#next - 1n });
    }
    return new Runs(runs, n);
  }

  /** Returns an ID that is held, or waits for the next range. */
  next(options: CallOptions | undefined): Promise<bigint> {
    if (options?.signal?.aborted) return Promise.reject(this.#target.gaveUp(options.signal, true));
    if (now() >= this.#until) this.#open = 0;
    const id = this.take();
    if (id !== undefined) return Promise.resolve(id);
    const call = new Call<bigint>(this.#target, this, options);
    this.#calls.push(call);
    this.#waiting++;
    this.#ask();
    if (options?.timeout === undefined) this.#deadline.watch();
    return call.promise;
  }

  /** Returns how many IDs wait for a call. */
  held(): number {
    return this.#ranges.reduce((sum, range) => sum + range.left, this.#open);
  }

  gaveUp(): void {
    this.#waiting--;
  }

  /** Opens the next window, if IDs are held that are not too old, and sends the next request if it is due. */
  #look(): boolean {
    this.#dropSpent();
    const range = this.#ranges[0];
    if (range) this.#openWindow(range);
    const isLast = this.#ranges.length < 2;
    if (!range ? this.#waiting > 0 || now() > this.#quietUntil : isLast && range.left <= this.#n / 2) this.#ask();
    return range !== undefined;
  }

  /** It allocates nothing but bigints. */
  #openWindow(range: Range): void {
    if (range.rest === 0) {
      const { first, last } = range.runs[range.at++]!;
      this.#next = first;
      range.rest = Number(last - first) + 1;
    }
    this.#from = range;
    this.#until = range.until;
    this.#open = Math.min(range.rest, lookEvery);
    range.rest -= this.#open;
    range.left -= this.#open;
  }

  /** Drops ranges that are used up or too old. */
  #dropSpent(): void {
    for (let i = this.#ranges.length - 1; i >= 0; i--) {
      const range = this.#ranges[i]!;
      const isOpen = range === this.#from && this.#open > 0;
      if ((range.left > 0 || isOpen) && timeLeft(range) > 0) continue;
      if (isOpen) this.#open = 0;
      clearTimeout(range.timer);
      this.#ranges.splice(i, 1);
    }
  }

  /** Sends a request unless one is under way. */
  #ask(): void {
    if (this.#isAsking) return;
    this.#isAsking = true;
    new Flight(this.#target, this.#n, this.#header, this).launch();
  }

  /** Reports whether a call waits, or IDs are held that the answer would follow. */
  isWanted(): boolean {
    return this.#waiting > 0 || this.#ranges.some((range) => timeLeft(range) > 0);
  }

  land(answer: Answer): void {
    this.#isAsking = false;
    if (answer.error) this.#fail(answer.error);
    if (answer.runs) this.#put(answer as Required<Answer>);
    this.#serve();
  }

  #put({ runs, sent, wall }: Required<Answer>): void {
    const range: Range = {
      runs: runs.runs,
      at: 0,
      rest: 0,
      until: sent + this.#maxAge,
      by: wall + this.#maxAge,
      follow: this.#maxAge / 4,
      left: this.#n,
      timer: undefined,
    };
    this.#ranges.push(range);
    this.#wake(range);
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

  /** Sets the timer of a range: at least every wakeEvery, when it will soon be too old, and when it is. */
  #wake(range: Range): void {
    const pause = Math.min(Math.max(0, timeLeft(range) - range.follow), wakeEvery);
    range.timer = after(pause, () => this.#tick(range));
  }

  /** Discards a range that is too old, and requests the next one before, if calls use the first. */
  #tick(range: Range): void {
    this.#dropSpent();
    const left = timeLeft(range);
    if (left <= 0 || !this.#ranges.includes(range)) return;
    if (range.follow > 0 && left <= range.follow) {
      range.follow = 0;
      const first = this.#ranges[0]!;
      if (this.#ranges.at(-1) === range && (first.left < this.#n)) this.#ask();
    }
    this.#wake(range);
  }
}
