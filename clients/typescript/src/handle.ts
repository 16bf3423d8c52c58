import { headers } from "@nats-io/nats-core";
import { Call, type CallOptions } from "./call.js";
import { checkCount } from "./check.js";
import { BadRequestError } from "./errors.js";
import { Flight, type Answer } from "./flight.js";
import { Merger } from "./merge.js";
import { Stock } from "./prefetch.js";
import { Runs, type Run } from "./runs.js";
import { Target, type Settings } from "./target.js";
import { duration } from "./text.js";

/** The counts of a handle since it was made. */
export interface Stats {
  /** IDs received, including those of a prefetched range. */
  ids: number;
  /** Requests sent, without copies. */
  requests: number;
  /** Copies sent since no answer came. */
  hedges: number;
  /** Copies sent after a refusal. */
  retries: number;
  /** Requests that ended without IDs. */
  failures: number;
  /** Prefetched IDs that wait for a call. */
  held: number;
  /** Smoothed response time in ms; 0 before the first answer. */
  usual: number;
}

/** The settings of a handle of a tag. What is not there, or 0, is the default. */
export interface SegmentOptions {
  /**
   * How many IDs are held in advance, at most the limit of the workers: see {@link Handle}. The default is none. Workers
   * refuse it for a strict tag, since other callers get higher IDs while IDs are held: calls reject with {@link BadRequestError}.
   */
  prefetch?: number | undefined;
  /** How old an ID that is held may become in ms, from before it was requested: at most an hour. The default is 60,000. */
  maxAge?: number | undefined;
  /** How many calls share a request at most. The default is 10,000. A lower limit of a worker is obeyed. */
  maxBatch?: number | undefined;
}

/**
 * Draws the IDs of one tag, or snowflakes. Keep it and share it: calls that overlap share requests.
 *
 * With `prefetch` it holds a range of IDs. A call that leaves half of it, or finds a quarter of `maxAge` left, requests
 * the next range in the background. IDs older than `maxAge` are discarded: so the time in a snowflake is no older than
 * that, and a raised max_id takes effect after it. Each discarded range is a hole. While natsid is out of reach, calls
 * get held IDs.
 */
export class Handle {
  readonly #target: Target;
  readonly #merger: Merger;
  readonly #stock: Stock | undefined;

  /** @internal */
  constructor(settings: Settings, subject: string, { prefetch, maxAge, maxBatch }: Record<keyof SegmentOptions, number>) {
    this.#target = new Target(settings, subject, maxBatch);
    this.#merger = new Merger(this.#target);
    if (prefetch === 0) return;
    const header = headers();
    header.set("Natsid-Prefetch", duration(maxAge));
    this.#stock = new Stock(this.#target, prefetch, maxAge, header);
  }

  /**
   * Returns one ID. Concurrent calls share requests: the ID is from a request that was sent after the call began, unless
   * it was held.
   *
   * The call asks again after refusals that another worker may not repeat, after silence, and after a lost connection,
   * until its time is up. Asking again is safe: no two calls return the same ID, and unused IDs are holes. It rejects
   * with {@link UnknownTagError}, {@link UsedUpError}, {@link BadRequestError}, {@link NotNatsidError},
   * {@link BusyError}, {@link ClosedError}, {@link TimeoutError}, {@link AbortError}, or {@link UnavailableError} while workers wait for an
   * operator.
   */
  next(options?: CallOptions): Promise<bigint> {
    return this.#stock ? this.#stock.next(options) : this.#merger.join(options);
  }

  /**
   * Returns one ID that is held; undefined if there is none, and then requests a range in the background, if the handle
   * has `prefetch`. Errors of workers are those of {@link next}.
   */
  takeSync(): bigint | undefined {
    return this.#stock?.take();
  }

  /** Returns one ID as a number. Rejects with a RangeError if it is above 2^53-1, as those of most layouts are. */
  async nextNumber(options?: CallOptions): Promise<number> {
    const id = await this.next(options);
    if (id <= Number.MAX_SAFE_INTEGER) return Number(id);
    throw new RangeError(
      `natsid: the ID ${id} is above 2^53-1, which no number holds: call next, or run the workers with --layout js53`,
    );
  }

  /**
   * Returns n IDs, 1 to 10,000,000: held ones if there are as many, or else others that are requested for this call
   * alone. Where n is above the limit of a request, 100,000 by default, it sends one request after the other; after a
   * failure the IDs of those before are holes.
   */
  async nextN(n: number, options?: CallOptions): Promise<Runs> {
    checkCount(n);
    if (options?.signal?.aborted) throw this.#target.gaveUp(options.signal, true);
    const held = this.#stock?.takeN(n);
    if (held) return held;
    const { settings } = this.#target;
    const timeout = options?.timeout ?? settings.timeout;
    const call = new Call<Runs>(this.#target, { gaveUp() {} }, { signal: options?.signal, timeout });
    this.#request(call, n, []);
    return call.promise;
  }

  /** Requests what a call lacks of its n IDs. No two replies hold the same ID. */
  #request(call: Call<Runs>, n: number, runs: readonly Run[], left = n): void {
    const target = this.#target;
    const part = Math.min(left, target.limit);
    const land = ({ runs: more, error }: Answer) => {
      const limit = error?.refusal?.maxBatch ?? 0;
      if (more) this.#request(call, n, [...runs, ...more.runs], left - part);
      else if (error instanceof BadRequestError && 0 < limit && limit < part) {
        target.limit = limit;
        this.#request(call, n, runs, left);
      } else call.reject(error);
    };
    if (left === 0) call.resolve(new Runs(runs, n));
    else if (!call.ended) new Flight(target, part, undefined, { isWanted: () => !call.ended, land }).launch();
  }

  /** Returns the counts of the handle. */
  stats(): Stats {
    return { ...this.#target.counts, held: this.#stock?.held() ?? 0, usual: this.#target.usual };
  }
}
