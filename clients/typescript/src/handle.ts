import { headers } from "@nats-io/nats-core";
import { Call, type CallOptions } from "./call.js";
import { checkCount, checkPrefetch } from "./check.js";
import { Flight } from "./flight.js";
import { Merger } from "./merge.js";
import { Stock } from "./prefetch.js";
import type { Runs } from "./runs.js";
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

/** How a handle differs from the default. */
export interface HandleOptions {
  /** How many calls share a request at most. The default is 10,000. A lower limit of a worker is obeyed. */
  maxBatch?: number | undefined;
}

/** What {@link Handle.prefetch} holds. */
export interface PrefetchOptions {
  /** IDs of a range: at least 1, and at most the limit of the workers. */
  n: number;
  /** How old an ID may become in ms, counted from before it was requested: at most an hour. */
  maxAge: number;
}

/** How many calls share a request at most, unless {@link HandleOptions} say otherwise. */
export const defaultMaxBatch = 10_000;

/**
 * Draws the IDs of one tag, or snowflakes. Keep it and share it: calls that overlap share requests.
 */
export class Handle {
  readonly #target: Target;
  readonly #merger: Merger;

  /** @internal */
  constructor(settings: Settings, subject: string, options?: HandleOptions) {
    const most = options?.maxBatch ?? defaultMaxBatch;
    this.#target = new Target(settings, subject, most >= 1 ? Math.floor(most) : defaultMaxBatch);
    this.#merger = new Merger(this.#target);
  }

  /**
   * Returns one ID. Concurrent calls share requests: the ID is from a request that was sent after the call began.
   *
   * The call asks again after refusals that another worker may not repeat, after silence, and after a lost connection,
   * until its time is up. Asking again is safe: no two calls return the same ID, and unused IDs are holes. It rejects
   * with {@link UnknownTagError}, {@link UsedUpError}, {@link BadRequestError}, {@link NotNatsidError},
   * {@link BusyError}, {@link ClosedError}, {@link TimeoutError}, {@link AbortError}, or {@link UnavailableError} while workers wait for an
   * operator.
   */
  next(options?: CallOptions): Promise<bigint> {
    return this.#merger.join(options);
  }

  /** Returns one ID as a number. Rejects with a RangeError if it is above 2^53-1, as those of most layouts are. */
  async nextNumber(options?: CallOptions): Promise<number> {
    const id = await this.next(options);
    if (id <= Number.MAX_SAFE_INTEGER) return Number(id);
    throw new RangeError(
      `natsid: the ID ${id} is above 2^53-1, which no number holds: call next, or run the workers with --layout js53`,
    );
  }

  /** Returns n IDs, which are requested for this call alone: at most the limit of the workers, 100,000 by default. */
  async nextN(n: number, options?: CallOptions): Promise<Runs> {
    checkCount(n);
    if (options?.signal?.aborted) throw this.#target.gaveUp(options.signal, true);
    const { settings } = this.#target;
    const timeout = options?.timeout ?? settings.timeout;
    const call = new Call<Runs>(this.#target, { gaveUp() {} }, { signal: options?.signal, timeout });
    const flight = new Flight(this.#target, n, undefined, {
      isWanted: () => !call.ended,
      land: ({ runs, error }) => (runs ? call.resolve(runs) : call.reject(error)),
    });
    flight.launch();
    return call.promise;
  }

  /**
   * Returns a handle of its own, which holds a range of n IDs, and requests the next range in the background before
   * the first is used up. IDs older than maxAge are discarded: so the time in a snowflake is no older than that, and a
   * raised max_id takes effect after it. Each discarded range is a hole. While natsid is out of reach, calls get held
   * IDs.
   *
   * Age is checked by a timer, at each call of next and at one of takeSync in 64. A suspended machine is noticed within
   * 64 calls or five seconds. IDs of a strict tag are not held: workers refuse that, and calls reject with {@link
   * BadRequestError}.
   */
  prefetch({ n, maxAge }: PrefetchOptions): PrefetchHandle {
    checkPrefetch({ n, maxAge });
    const { settings, subject, most } = this.#target;
    return new PrefetchHandle(settings, subject, { maxBatch: most }, { n, maxAge });
  }

  /** Returns the counts of the handle. */
  stats(): Stats {
    return { ...this.#target.counts, held: 0, usual: this.#target.usual };
  }

  /** @internal */
  protected stock({ n, maxAge }: PrefetchOptions): Stock {
    const header = headers();
    header.set("Natsid-Prefetch", duration(maxAge));
    return new Stock(this.#target, n, maxAge, header);
  }
}

/** A handle that holds IDs for future calls. */
export class PrefetchHandle extends Handle {
  readonly #stock: Stock;

  /** @internal */
  constructor(settings: Settings, subject: string, options: HandleOptions, prefetch: PrefetchOptions) {
    super(settings, subject, options);
    this.#stock = this.stock(prefetch);
  }

  /** Returns one ID that is held, or waits for the next range. */
  override next(options?: CallOptions): Promise<bigint> {
    return this.#stock.next(options);
  }

  /**
   * Returns one ID that is held; undefined if there is none, and then requests a range in the background. Errors of
   * workers are those of {@link next}.
   */
  takeSync(): bigint | undefined {
    return this.#stock.take();
  }

  override stats(): Stats {
    return { ...super.stats(), held: this.#stock.held() };
  }
}
