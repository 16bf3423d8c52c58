import { Call, Deadline, type CallOptions, type Owner } from "./call.js";
import { BusyError, type NatsidError, UsedUpError } from "./errors.js";
import { Flight, type Answer, type Launcher } from "./flight.js";
import type { Run } from "./runs.js";
import { now, type Target } from "./target.js";
import { after, type Timer } from "./timer.js";

/** How many batches of a handle are under way at most, so that a batch that hangs does not stall the others. */
const mostUnderWay = 4;
/** How many calls of a handle wait at most, in full requests. */
const waitingMost = 5;

/**
 * Calls that share a request. A call joins only a batch that has not left, so its ID is from a request that was sent
 * after the call began: the client's part of the third law, of strict tags, in docs/client-laws.md.
 */
class Batch implements Owner, Launcher {
  readonly merger: Merger;
  calls: Call<bigint>[] = [];
  /** Calls that still wait. */
  waiting = 0;
  #asked = 0;
  #left = 0;
  #runs: Run[] = [];
  #error: NatsidError | undefined;

  constructor(merger: Merger) {
    this.merger = merger;
  }

  join(call: Call<bigint>): void {
    if (this.calls.length > 2 * this.waiting + 100) this.calls = this.calls.filter((c) => !c.ended);
    this.calls.push(call);
    this.waiting++;
  }

  gaveUp(): void {
    this.waiting--;
    this.merger.waiting--;
  }

  isWanted(): boolean {
    return this.waiting > 0;
  }

  /** Sends the requests of the batch: more than one if it is larger than a request may be. */
  depart(): number {
    this.calls = this.calls.filter((call) => !call.ended);
    this.#asked = this.calls.length;
    this.#launch(this.#asked);
    return this.#asked;
  }

  #launch(n: number, part = Infinity): void {
    const { target } = this.merger;
    for (; n > 0; n -= part, part = Infinity) {
      part = Math.min(part, target.most, target.limit);
      this.#left++;
      new Flight(target, Math.min(n, part), undefined, this).launch();
    }
  }

  /** Takes the answer to a request of the batch. */
  land({ runs, error }: Answer, { n }: Flight): void {
    const { target } = this.merger;
    const limit = error?.refusal?.maxBatch ?? 0;
    this.#left--;
    if (0 < limit && limit < n) {
      // How many numbers are left of a tag limits no later request.
      if (!(error instanceof UsedUpError)) target.limit = limit; // above that of another batch it costs one more split
      this.#launch(n, limit);
      return;
    }
    if (runs) this.#runs.push(...runs.runs);
    this.#error ??= error;
    if (this.#left > 0) return;
    this.merger.landed(this);
    this.#handOut();
    this.merger.proceed();
  }

  /** Gives each call that waits an ID, in the order in which the calls began; the error where there are no more. */
  #handOut(): void {
    let i = 0;
    for (const { first, last } of this.#runs) {
      for (let id = first; id <= last && i < this.calls.length; id++) this.calls[i++]!.resolve(id);
    }
    for (const call of this.calls.slice(i)) call.reject(this.#error!);
  }
}

/**
 * Lets concurrent calls share requests, without a timer. Calls that begin while a batch is under way gather in the next
 * batch. It leaves when the batch under way is answered or takes longer than usual, or when it fills a request; a batch
 * that had to wait may need several requests.
 */
export class Merger {
  readonly target: Target;
  /** Calls that wait, of all batches. */
  waiting = 0;
  #gathering = new Batch(this);
  #underWay: Batch[] = [];
  #left = -Infinity;
  #isDue = false;
  #timer: Timer | undefined;
  readonly #deadline: Deadline;

  constructor(target: Target) {
    this.target = target;
    this.#deadline = new Deadline(target.settings.timeout, () => this.#calls());
  }

  /** Begins a call for one ID. */
  join(options: CallOptions | undefined): Promise<bigint> {
    if (options?.signal?.aborted) return Promise.reject(this.target.gaveUp(options.signal, true));
    if (this.waiting >= waitingMost * this.target.most) {
      return Promise.reject(
        new BusyError(`natsid: too many calls wait already: ${this.waiting} on ${this.target.subject}`),
      );
    }
    const batch = this.#gathering;
    const call = new Call<bigint>(this.target, batch, options);
    batch.join(call);
    this.waiting++;
    if (options?.timeout === undefined) this.#deadline.watch();
    if (batch.waiting === 1 || batch.waiting === this.target.most) this.#departSoon();
    return call.promise;
  }

  /** Sends the batch that gathers once the calls that begin in this turn have joined it. */
  #departSoon(): void {
    if (this.#isDue) return;
    this.#isDue = true;
    queueMicrotask(() => {
      this.#isDue = false;
      this.#depart();
    });
  }

  /** Sends the batch that gathers if it may leave, or looks again when it may. */
  #depart(): void {
    const batch = this.#gathering;
    if (batch.waiting === 0 || this.#underWay.length === mostUnderWay) return;
    const wait = this.#mustWait(batch);
    if (wait > 0) {
      this.#timer ??= after(wait, () => {
        this.#timer = undefined;
        this.#depart();
      });
      return;
    }
    this.#gathering = new Batch(this);
    this.#underWay.push(batch);
    this.#left = now();
    batch.depart();
  }

  /** Returns how long the batch that gathers must wait at least, in ms. */
  #mustWait(batch: Batch): number {
    if (this.#underWay.length === 0 || batch.waiting >= this.target.most) return 0;
    return this.#left + this.target.gap() - now();
  }

  /** Is called when a batch is answered, before its calls get their IDs. */
  landed(batch: Batch): void {
    this.waiting -= batch.waiting;
    this.#underWay = this.#underWay.filter((b) => b !== batch);
  }

  /** Is called after that: the next batch leaves when those calls had their turn, and may have joined it again. */
  proceed(): void {
    if (this.#gathering.waiting > 0) this.#departSoon();
  }

  *#calls(): Iterable<Call<bigint>> {
    for (const batch of [...this.#underWay, this.#gathering]) yield* batch.calls;
  }
}
