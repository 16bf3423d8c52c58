import type { NatsConnection } from "@nats-io/nats-core";
import { AbortError, TimeoutError, type NatsidError } from "./errors.js";
import type { Inbox } from "./inbox.js";

/**
 * What a client gives to all its handles.
 *
 * @internal
 */
export interface Settings {
  nc: NatsConnection;
  inbox: Inbox;
  /** Bounds calls without a timeout of their own, in ms. */
  timeout: number;
  failFast: boolean;
  /** Returns the error of a reply that no worker sends, and logs the first. */
  notNatsid(subject: string, fault: Error): NatsidError;
}

/**
 * The time by the monotonic clock, in ms.
 *
 * @internal
 */
export const now: () => number = performance.now.bind(performance);

// Bounds of the response time after which another worker is asked: within them it is RFC 6298's time-out, a smoothed
// time and four deviations.
const hedgeSoonest = 100;
const hedgeLatest = 500;

// Bounds of the gap between two batches, unless the answer to the first comes earlier: within them the gap is a
// quarter of the usual time, so that four batches under way cover that time.
const gapLeast = 1;
const gapMost = 100;

/** Bounds how long a reply can stop a handle's requests, in ms. */
const holdMost = 30_000;

// Copies are bounded to a tenth of the requests, so that an overloaded service does not get twice the load. Requests of
// the last minute or so count, too. At least four copies a second, and 200 at once, are allowed, since a handle that is
// new or seldom used must be able to retry.
const sparePerRequest = 0.1;
const sparePerSecond = 4;
const spareLeast = 200;
const recentFor = 60;

/**
 * The subject of a handle's requests, with measurements and limits.
 *
 * @internal
 */
export class Target {
  readonly settings: Settings;
  readonly subject: string;
  /** How many calls share a request at most. */
  readonly most: number;
  /** A worker's limit of IDs a request, once it refused more. */
  limit = Infinity;
  readonly counts = { ids: 0, requests: 0, hedges: 0, retries: 0, failures: 0 };
  /** Smoothed response time in ms; 0 before the first answer. */
  usual = 0;
  /** Why the latest copy was refused; undefined if it was not, or was sent where no answer came in time. */
  trouble: NatsidError | undefined;
  #spread = 0;
  #holdUntil = 0;
  #used = 0;
  #recent = 0;
  #sparedAt = now();

  constructor(settings: Settings, subject: string, most: number) {
    this.settings = settings;
    this.subject = subject;
    this.most = most;
  }

  /** Takes in a response time. The weights are those of TCP's smoothed round trip (RFC 6298). */
  learn(took: number): void {
    if (this.usual === 0) {
      this.usual = took;
      this.#spread = took / 2;
      return;
    }
    this.#spread += (Math.abs(took - this.usual) - this.#spread) / 4;
    this.usual += (took - this.usual) / 8;
  }

  /** Returns the response time after which another worker is asked. */
  patience(): number {
    return Math.min(Math.max(this.usual + 4 * this.#spread, hedgeSoonest), hedgeLatest);
  }

  gap(): number {
    return Math.min(Math.max(this.usual / 4, gapLeast), gapMost);
  }

  /** Returns for how long no request may be sent. */
  held(): number {
    return this.#holdUntil === 0 ? 0 : Math.max(0, this.#holdUntil - now());
  }

  /** Stops the handle's requests for some ms. */
  holdFor(ms: number): void {
    this.#holdUntil = Math.max(this.#holdUntil, now() + Math.min(ms, holdMost));
  }

  /** Counts a request that is not a copy. */
  earn(): void {
    this.#pass();
    this.#used = Math.max(0, this.#used - sparePerRequest);
    this.#recent++;
  }

  /** Reports whether one more copy of a request may be sent, and counts it. */
  spend(): boolean {
    this.#pass();
    if (this.#used + 1 > spareLeast + this.#recent * sparePerRequest) return false;
    this.#used++;
    return true;
  }

  /** Takes back the count of a copy that reached no worker. */
  refund(): void {
    this.#used = Math.max(0, this.#used - 1);
  }

  /** Applies the time that has passed. */
  #pass(): void {
    const at = now();
    const passed = (at - this.#sparedAt) / 1e3;
    this.#used = Math.max(0, this.#used - passed * sparePerSecond);
    this.#recent *= Math.exp(-passed / recentFor);
    this.#sparedAt = at;
  }

  /** Returns the error of a call that ends without an answer: its time is up, or its signal was aborted. */
  gaveUp(signal?: AbortSignal, isUnsent = false): NatsidError {
    const reason: unknown = signal?.aborted ? signal.reason : undefined;
    const timeUp = !signal?.aborted || (reason instanceof Error && reason.name === "TimeoutError");
    const what = timeUp ? "the time of the call is up" : "the call was canceled";
    const { connected } = this.settings.inbox.link;
    const trouble = isUnsent || !connected ? undefined : this.trouble;
    const text = isUnsent
      ? `natsid: nothing was sent on ${this.subject}: ${what} before`
      : !connected
      ? `natsid: no ID from ${this.subject}: ${what}; the reason: the connection to NATS is lost`
      : trouble
      ? `natsid: no ID from ${this.subject}: ${what}; the reason: ${trouble.message}`
      : `natsid: no answer on ${this.subject} yet; ask again: ${what}`;
    return new (timeUp ? TimeoutError : AbortError)(text, { cause: trouble ?? reason });
  }
}
