import { createInbox, type Msg, type NatsConnection, type Subscription } from "@nats-io/nats-core";
import { ClosedError, NatsidError } from "./errors.js";

/** The state of a connection, as its events tell it. */
export interface Link {
  connected: boolean;
  /** How often the connection was made again: what was sent before the last time is lost. */
  reconnects: number;
}

const links = new WeakMap<NatsConnection, Link>();

/** Returns the state of a connection: one for all clients on it. */
function linkOf(nc: NatsConnection): Link {
  let link = links.get(nc);
  if (!link) {
    link = { connected: nc.info !== undefined, reconnects: 0 };
    links.set(nc, link);
    void follow(nc, link);
  }
  return link;
}

async function follow(nc: NatsConnection, link: Link): Promise<void> {
  for await (const { type } of nc.status()) {
    if (type === "disconnect") link.connected = false;
    if (type !== "reconnect") continue;
    link.connected = true;
    link.reconnects++;
  }
}

/** What waits for the reply to one request. */
export interface Receiver {
  /** Takes the reply; or the error after which none can arrive. */
  receive(token: string, msg: Msg | undefined, error?: NatsidError): void;
}

/** Receives the replies of a client on one subscription, which it opens with the first request. */
export class Inbox {
  readonly link: Link;
  readonly #nc: NatsConnection;
  #sub: Subscription | undefined;
  #prefix = "";
  #last = 0;
  #waiting = new Map<string, Receiver>();
  #closed = false;

  constructor(nc: NatsConnection) {
    this.#nc = nc;
    this.link = linkOf(nc);
  }

  /** Returns a token. The receiver gets the reply to its subject, {@link replyTo}, unless it is forgotten before. */
  expect(receiver: Receiver): string {
    if (!this.#sub || this.#sub.isClosed()) this.#open();
    const token = (++this.#last).toString(36);
    this.#waiting.set(token, receiver);
    return token;
  }

  replyTo(token: string): string {
    return this.#prefix + token;
  }

  /** Returns the error after which no reply can arrive, if there is one. */
  check(): NatsidError | undefined {
    if (this.#closed) return new ClosedError("natsid: the client is closed");
    if (this.#nc.isClosed()) return new ClosedError("natsid: the connection to NATS is closed");
    if (this.#nc.isDraining()) return new ClosedError("natsid: the connection to NATS is draining");
    return undefined;
  }

  /** Drops the receiver of a token: a later reply is ignored. */
  forget(token: string): void {
    this.#waiting.delete(token);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#sub && !this.#sub.isClosed()) this.#sub.unsubscribe(); // this ends all that waits
  }

  #open(): void {
    // Where the user of NATS may subscribe to inboxes of one prefix only, the connection has that.
    const { options } = this.#nc as { options?: { inboxPrefix?: string } };
    this.#prefix = `${createInbox(options?.inboxPrefix)}.`;
    const sub = this.#nc.subscribe(`${this.#prefix}*`, { callback: (error, msg) => this.#receive(error, msg) });
    this.#sub = sub;
    void sub.closed.then(() => {
      if (this.#sub === sub) this.#fail(this.check() ?? new ClosedError("natsid: the connection to NATS is closed"));
    });
  }

  #receive(error: Error | null, msg: Msg): void {
    if (error) {
      this.#fail(new NatsidError("natsid: subscribe to replies", { cause: error }));
      return;
    }
    const token = msg.subject.slice(this.#prefix.length);
    const receiver = this.#waiting.get(token);
    this.#waiting.delete(token);
    receiver?.receive(token, msg);
  }

  /** Ends all that waits with an error. */
  #fail(error: NatsidError): void {
    const waiting = this.#waiting;
    this.#waiting = new Map();
    for (const [token, receiver] of waiting) receiver.receive(token, undefined, error);
  }
}
