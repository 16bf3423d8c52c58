/**
 * Draws IDs from natsid over NATS. The laws that the calls keep are those of natsid's clients in every language:
 * docs/client-laws.md of natsid.
 *
 * @module
 */
import type { NatsConnection } from "@nats-io/nats-core";
import type { CallOptions } from "./call.js";
import { checkNamespace, checkOptions, checkTag, checkTimeout } from "./check.js";
import { NotNatsidError } from "./errors.js";
import { Handle, type SegmentOptions } from "./handle.js";
import { Inbox } from "./inbox.js";
import { ensureTag, type TagSettings } from "./tags.js";
import type { Settings } from "./target.js";

export type { CallOptions } from "./call.js";
export {
  AbortError, BadRequestError, BusyError, ClosedError, NatsidError, NotNatsidError, NotServedError, type Refusal,
  TagExistsError, ThrottledError, TimeoutError, UnavailableError, UnknownTagError,
  UsedUpError,
} from "./errors.js";
export type { Handle, SegmentOptions, Stats } from "./handle.js";
export { parseID } from "./id.js";
export { decode, type Layout, type Parts } from "./layout.js";
export type { Run, Runs } from "./runs.js";
export type { TagSettings } from "./tags.js";

/** How a client differs from the default. */
export interface Options {
  /** The namespace of the workers. The default is "id". */
  namespace?: string | undefined;
  /** Bounds calls that have no timeout of their own, in ms. The default is 5000. */
  timeout?: number | undefined;
  /**
   * Has calls fail with {@link NotServedError} at once where no worker serves them, instead of asking again until their
   * time is up. That may be so for a moment, as while the only worker restarts.
   */
  failFast?: boolean | undefined;
  /** Receives messages for an operator: the first {@link NotNatsidError}. The default is console.warn. */
  log?: ((message: string) => void) | undefined;
}

/** The settings of a handle of snowflakes. What is not there, or 0, is the default. */
export interface SnowflakeOptions extends Pick<SegmentOptions, "prefetch" | "maxAge"> {
  /** The business, for a layout that has a field for it. The default is 0. */
  business?: number | bigint | undefined;
}

/** How many handles a client remembers, so that calls share requests. */
const handlesMost = 10_000;

/** Requests IDs from the workers of one namespace. */
export class Client {
  readonly #settings: Settings;
  readonly #namespace: string;
  readonly #handles = new Map<string, Handle>();

  /** @internal */
  constructor(nc: NatsConnection, options: Options) {
    this.#namespace = options.namespace ?? "id";
    checkNamespace(this.#namespace);
    checkTimeout(options.timeout ?? 0);
    this.#settings = {
      nc,
      inbox: new Inbox(nc),
      timeout: options.timeout || 5000,
      failFast: options.failFast ?? false,
      notNatsid: foreign(options.log ?? ((message) => console.warn(message))),
    };
  }

  /**
   * Returns the handle of a tag: the same for all callers with the same options, who share its requests. Throws a
   * RangeError if an argument is malformed.
   */
  segment(tag: string, options: SegmentOptions = {}): Handle {
    checkTag(tag);
    return this.#handle(`segment.${tag}`, options);
  }

  /** Returns the handle of snowflakes of a business, as {@link segment} does that of a tag. */
  snowflake({ business, ...options }: SnowflakeOptions = {}): Handle {
    const kind = business ? `snowflake.${business}` : "snowflake";
    const isWrong = business !== undefined && !/^(0|[1-9]\d*)$/.test(String(business));
    if (isWrong) throw new RangeError(`natsid: the business is "${business}", want a decimal from 0 on`);
    return this.#handle(kind, options);
  }

  /**
   * Ends the client's subscription to replies. Calls, under way or later, reject with {@link ClosedError}, but prefetched
   * IDs are given out until they are used up or too old. The connection stays open. A caller that closes the connection
   * need not close the client.
   */
  close(): void {
    this.#settings.inbox.close();
  }

  /**
   * Creates a tag, also one that was deleted, unless there is one with the same settings: so a service may call it at
   * each start, and again after an error. Rejects with {@link TagExistsError} if a setting differs, and changes nothing.
   */
  async ensureTag(tag: string, settings: TagSettings = {}, options: CallOptions = {}): Promise<void> {
    checkTag(tag);
    await ensureTag(this.#settings, this.#namespace, tag, settings, options);
  }

  #handle(kind: string, options: SegmentOptions): Handle {
    checkOptions(options);
    const { prefetch = 0, maxAge, maxBatch } = options;
    const all = { prefetch, maxAge: maxAge || 60_000, maxBatch: maxBatch || 10_000 };
    const key = [kind, ...Object.values(all)].join(" ");
    let handle = this.#handles.get(key);
    if (!handle) {
      if (this.#handles.size === handlesMost) this.#handles.clear(); // callers keep the handles that they hold
      handle = new Handle(this.#settings, `${this.#namespace}.${kind}`, all);
      this.#handles.set(key, handle);
    }
    return handle;
  }
}

/** Returns the function that makes the error of a reply that no worker sends, and logs the first. */
function foreign(log: (message: string) => void): Settings["notNatsid"] {
  let isLogged = false;
  return (subject, fault) => {
    const cause = `does a JetStream stream or another program listen on ${subject}?`;
    const text = `the reply is not natsid's: ${fault.message}; ${cause}`;
    if (!isLogged) log(`natsid: ${text}`);
    isLogged = true;
    return new NotNatsidError(`natsid: ${text}`, { cause: fault });
  };
}

/**
 * Returns a client on a connection, which the caller closes. It sends nothing before the first call.
 *
 * A connection should notice within two seconds that its server hangs, and never give up: connect with `pingInterval:
 * 1000, maxPingOut: 1, maxReconnectAttempts: -1, reconnectTimeWait: 100`.
 */
export function natsid(nc: NatsConnection, options: Options = {}): Client {
  if (typeof nc?.publish !== "function") {
    throw new TypeError(`natsid: want a connection to NATS, as connect() returns once it is awaited, not ${nc}`);
  }
  return new Client(nc, options);
}
