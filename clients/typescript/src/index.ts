/**
 * Draws IDs from natsid over NATS. The laws that the calls keep are those of natsid's clients in every language:
 * docs/client-laws.md of natsid.
 *
 * @module
 */
import type { NatsConnection } from "@nats-io/nats-core";
import { checkNamespace, checkTag } from "./check.js";
import { badRequest, ErrNotNatsid, type NatsidError } from "./errors.js";
import { Handle, type HandleOptions } from "./handle.js";
import { Inbox } from "./inbox.js";
import type { Settings } from "./target.js";

export type { CallOptions } from "./call.js";
export {
  ErrBadRequest, ErrBusy, ErrCanceled, ErrClosed, ErrDeadlineExceeded, ErrNotNatsid, ErrNotServed, ErrThrottled,
  ErrUnavailable, ErrUnknownTag, ErrUsedUp, is, NatsidError, type Refusal,
} from "./errors.js";
export type { Handle, HandleOptions, PrefetchHandle, PrefetchOptions, Stats } from "./handle.js";
export { parseID } from "./id.js";
export { decode, type Layout, type Parts } from "./layout.js";
export type { Run, Runs } from "./runs.js";

/** How a client differs from the default. */
export interface Options {
  /** The namespace of the workers. The default is "id". */
  namespace?: string | undefined;
  /** Bounds calls that have no timeout of their own, in ms. The default is 5000. */
  timeout?: number | undefined;
  /**
   * Has calls fail with {@link ErrNotServed} at once where no worker serves them, instead of asking again until their
   * time is up. That may be so for a moment, as while the only worker restarts.
   */
  failFast?: boolean | undefined;
  /** Receives messages for an operator: the first {@link ErrNotNatsid}. The default is console.warn. */
  log?: ((message: string) => void) | undefined;
}

/** How snowflakes differ from the default. */
export interface SnowflakeOptions extends HandleOptions {
  /** The business, for a layout that has a field for it. The default is 0. */
  business?: number | bigint | undefined;
}

/** How many handles a client remembers, so that calls share requests. */
const handlesMost = 10_000;

/** Requests IDs from the workers of one namespace. */
export class Client {
  readonly #settings: Settings;
  readonly #namespace: string;
  readonly #fault: NatsidError | undefined;
  readonly #handles = new Map<string, Handle>();

  /** @internal */
  constructor(nc: NatsConnection, options: Options) {
    this.#namespace = options.namespace ?? "id";
    this.#fault = checkNamespace(this.#namespace);
    this.#settings = {
      nc,
      inbox: new Inbox(nc),
      timeout: options.timeout || 5000,
      failFast: options.failFast ?? false,
      notNatsid: foreign(options.log ?? ((message) => console.warn(message))),
    };
  }

  /**
   * Returns the handle of a tag. Without options it is the same for all callers, who share its requests; with options
   * each call returns a new handle. If the tag is malformed, the calls of the handle reject with {@link ErrBadRequest}.
   */
  segment(tag: string, options?: HandleOptions): Handle {
    return this.#handle(`segment.${tag}`, checkTag(tag), options);
  }

  /** Returns the handle of snowflakes. It is shared as that of a tag is; a business is no option that separates it. */
  snowflake({ business, ...options }: SnowflakeOptions = {}): Handle {
    const kind = business === undefined ? "snowflake" : `snowflake.${business}`;
    const isWrong = business !== undefined && !/^(0|[1-9]\d*)$/.test(String(business));
    const fault = isWrong ? badRequest(`the business is "${business}", want a decimal from 0 on`) : undefined;
    return this.#handle(kind, fault, Object.keys(options).length > 0 ? options : undefined);
  }

  /**
   * Ends the client's subscription to replies. Calls, under way or later, reject with {@link ErrClosed}, but prefetched
   * IDs are given out until they are used up or too old. The connection stays open. A caller that closes the connection
   * need not close the client.
   */
  close(): void {
    this.#settings.inbox.close();
  }

  #handle(kind: string, fault: NatsidError | undefined, options: HandleOptions | undefined): Handle {
    const subject = `${this.#namespace}.${kind}`;
    fault = this.#fault ?? fault;
    if (fault || options) return new Handle(this.#settings, subject, fault, options);
    let handle = this.#handles.get(subject);
    if (!handle) {
      if (this.#handles.size === handlesMost) this.#handles.clear(); // callers keep the handles that they hold
      handle = new Handle(this.#settings, subject, undefined);
      this.#handles.set(subject, handle);
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
    return new ErrNotNatsid(`natsid: ${text}`, { cause: fault });
  };
}

/**
 * Returns a client on a connection, which the caller closes. It sends nothing before the first call.
 *
 * A connection should notice within two seconds that its server hangs, and never give up: connect with `pingInterval:
 * 1000, maxPingOut: 1, maxReconnectAttempts: -1, reconnectTimeWait: 100`.
 */
export function natsid(nc: NatsConnection, options: Options = {}): Client {
  return new Client(nc, options);
}
