/**
 * A natsid of its own for a test suite: `natsid test-server`, with faults.
 *
 * @module
 */
import { wsconnect } from "@nats-io/nats-core";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** What the server is like. */
export interface TestServerOptions {
  /** The layout of snowflakes, as of `natsid --layout`. */
  layout?: string | undefined;
  /** The namespace of the subjects. The default is "id". */
  namespace?: string | undefined;
}

/** Where the server is: what `natsid test-server` prints. */
interface Where {
  nats: string;
  websocket: string;
  http: string;
  control: string;
  namespace: string;
  version: string;
}

/** A NATS server and a natsid worker, in memory, on free ports of this machine. */
export class TestServer implements AsyncDisposable {
  /** The URL of NATS. */
  readonly nats: string;
  /** The URL of NATS for browsers. */
  readonly websocket: string;
  /** The URL of health, metrics and the page. */
  readonly http: string;
  readonly namespace: string;
  /** The version of natsid. */
  readonly version: string;
  readonly #child: ChildProcess;
  readonly #subject: string;

  /** @internal */
  constructor(child: ChildProcess, where: Where) {
    this.nats = where.nats;
    this.websocket = where.websocket;
    this.http = where.http;
    this.namespace = where.namespace;
    this.version = where.version;
    this.#subject = where.control;
    this.#child = child;
  }

  /** Lets requests for IDs wait for so many ms, or until resume, before the worker gets them. */
  stall(ms?: number): Promise<void> {
    return this.order("stall", ms);
  }

  /** Answers requests for IDs with an error code, 400, 404, 429, 500 or 503, for so many ms, or until resume. */
  refuse(code: number, ms?: number): Promise<void> {
    return this.order(`refuse ${code}`, ms);
  }

  /** Drops the replies to requests that the worker gets within so many ms, or until resume: their IDs are a hole. */
  dropReplies(ms?: number): Promise<void> {
    return this.order("drop replies", ms);
  }

  /** Ends what stall, refuse or dropReplies began. */
  resume(): Promise<void> {
    return this.order("resume");
  }

  /** Stops the worker and starts it again. */
  restart(): Promise<void> {
    return this.order("restart");
  }

  /** Raises the next ID of each tag by n: by 2n ** 53n it breaks code that stores IDs as numbers. */
  skip(n: number | bigint): Promise<void> {
    return this.order(`skip ${n}`);
  }

  /** Plays a fault in the words of `natsid test-server --help`. Rejects with the server's sentence if there is none. */
  async order(words: string, ms?: number): Promise<void> {
    const order = ms === undefined ? words : `${words} for ${ms}ms`;
    const nc = await wsconnect({ servers: this.websocket }); // one that is kept is lost while a debugger holds the process
    try {
      const { headers } = await nc.request(this.#subject, order, { timeout: 30_000 });
      const fault = headers?.get("Nats-Service-Error");
      if (fault) throw new Error(`natsid/testing: ${fault}`);
    } finally {
      await nc.close();
    }
  }

  /** Ends the server. It ends with this process, too. */
  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    this.#child.stdin!.end();
    await once(this.#child, "exit");
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

/**
 * Starts a server for tests. The program is that of the environment variable NATSID_BIN, or `natsid` on the PATH.
 *
 * The server keeps this process alive until it is stopped, as after all tests.
 */
export async function start(options: TestServerOptions = {}): Promise<TestServer> {
  const args = ["test-server"];
  if (options.layout) args.push("--layout", options.layout);
  if (options.namespace) args.push("--namespace", options.namespace);
  const program = process.env["NATSID_BIN"] || "natsid";
  try {
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
    const where: Where = JSON.parse(await firstLine(child));
    return new TestServer(child, where);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT") throw cause;
    throw new Error(
      `natsid/testing: there is no program ${program}: install natsid with ` +
        "`go install github.com/natsid/natsid@latest` or from a release, or say where it is in NATSID_BIN",
      { cause },
    );
  }
}

/** Returns the line that a process prints when it serves. */
async function firstLine(child: ChildProcess): Promise<string> {
  const ended = once(child, "exit").then(([code]) => {
    throw new Error(`natsid/testing: natsid test-server ended with ${code}; its output says why`);
  });
  const line = once(createInterface(child.stdout!), "line").then(([text]) => text as string);
  return await Promise.race([line, ended]);
}
