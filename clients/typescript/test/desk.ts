// What tests share: a natsid, connections, and a desk, which answers requests as a test says.
import assert from "node:assert/strict";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { headers, type Msg, type NatsConnection } from "@nats-io/nats-core";
import { connect as dial } from "@nats-io/transport-node";
import { type Client, natsid, type Options } from "natsid";
import { start, type TestServer } from "natsid/testing";

/** A natsid for the tests of one file. Desks answer in namespaces of their own beside it. */
export const server: TestServer = await start();
const connections: NatsConnection[] = [];

after(async () => {
  await Promise.all(connections.map((nc) => nc.close()));
  await server.stop();
});

/** Connects to the server, until the tests of the file have ended. */
export async function connect(options: Parameters<typeof dial>[0] = {}): Promise<NatsConnection> {
  const nc = await dial({ servers: server.nats, ...options });
  connections.push(nc);
  return nc;
}

/** What a busy machine may add to a time, in ms. */
export const slack = 10_000;
/** A timeout that "at once" does not come near, in ms. */
export const long = 60_000;

/** Waits until a condition holds. */
export async function until(what: string, holds: () => boolean): Promise<void> {
  for (const end = performance.now() + long; !holds(); await sleep(2)) {
    if (performance.now() > end) assert.fail(`not within ${long} ms: ${what}`);
  }
}

export { sleep };

/** A request that a desk got. */
export interface Asked {
  n: number;
  msg: Msg;
  at: number;
}

/** Decides what a desk does with a request, and reports whether it has: otherwise the desk issues IDs. */
export type Script = (asked: Asked, number: number) => boolean;

let desks = 0;

/** Answers requests of a namespace in natsid's place, in the order 1, 2, 3 and so on for all tags. */
export class Desk {
  readonly namespace = `desk${++desks}`;
  last = 0n;
  asked: Asked[] = [];
  held: Asked[] = [];
  script: Script | undefined;
  readonly #nc: NatsConnection;

  constructor(nc: NatsConnection) {
    this.#nc = nc;
    nc.subscribe(`${this.namespace}.>`, { queue: "natsid", callback: (_, msg) => this.#take(msg) });
  }

  /** Opens a desk on a connection of its own. */
  static async open(): Promise<Desk> {
    const desk = new Desk(await connect());
    await desk.flush();
    return desk;
  }

  /** Waits until NATS has what the desk sent. */
  flush(): Promise<void> {
    return this.#nc.flush();
  }

  /** Returns a client of the desk on a connection of its own, whose calls wait longer than a busy machine takes. */
  async client(options: Options = {}): Promise<Client> {
    return this.clientOn(await connect(), options);
  }

  clientOn(nc: NatsConnection, options: Options = {}): Client {
    return natsid(nc, { namespace: this.namespace, timeout: long, ...options });
  }

  #take(msg: Msg): void {
    const asked = { n: msg.data.length === 0 ? 1 : Number(msg.string()), msg, at: performance.now() };
    this.asked.push(asked);
    if (!this.script?.(asked, this.asked.length)) this.issue(asked);
  }

  /** Keeps requests until {@link issueHeld}. */
  hold(): void {
    this.script = (asked) => this.held.push(asked) > 0;
  }

  /** Answers what is held, and from now on at once. */
  issueHeld(): void {
    this.script = undefined;
    for (const asked of this.held.splice(0)) this.issue(asked);
  }

  issue({ n, msg }: Asked): void {
    const first = this.last + 1n;
    this.last += BigInt(n);
    msg.respond(n === 1 ? String(first) : `${first}-${this.last}`);
  }

  refuse(asked: Asked, code: number | string, more: Record<string, string> = {}): true {
    const head = headers();
    head.set("Nats-Service-Error-Code", String(code));
    head.set("Nats-Service-Error", "because");
    for (const [key, value] of Object.entries(more)) head.set(key, value);
    asked.msg.respond("", { headers: head });
    return true;
  }
}

/** Fails unless each ID is higher than the one before. Where the machine is busy, copies of requests leave holes. */
export function rising(ids: readonly bigint[]): void {
  assert.ok(ids.every((id, i) => i === 0 || id > ids[i - 1]!), `${ids}`);
}

/** Fails unless each ID is there once, and there are so many. */
export function once(ids: readonly bigint[], n: number): void {
  assert.equal(ids.length, n);
  assert.equal(new Set(ids).size, n, "an ID was given twice");
}

/** Returns what a promise rejects with. */
export async function failure(promise: Promise<unknown>): Promise<Error> {
  try {
    assert.fail(`it does not fail, but returns ${await promise}`);
  } catch (error) {
    if (error instanceof assert.AssertionError) throw error;
    return error as Error;
  }
}
