// The adapter of this client for natsid's conformance suite: JSON-RPC over stdin and stdout, see proof/conformance/README.md.
import { createInterface } from "node:readline";
import { connect } from "@nats-io/transport-node";
import {
  AbortError, BadRequestError, BusyError, ClosedError, decode, natsid, NatsidError, NotNatsidError, NotServedError,
  ThrottledError, TimeoutError, UnavailableError, UnknownTagError, UsedUpError,
} from "natsid";

const kinds = [
  [NotServedError, "NotServed"], [UnavailableError, "Unavailable"], [ThrottledError, "Throttled"],
  [BadRequestError, "BadRequest"], [RangeError, "BadRequest"], [UnknownTagError, "UnknownTag"],
  [UsedUpError, "UsedUp"], [NotNatsidError, "NotNatsid"], [BusyError, "Busy"],
  [ClosedError, "Closed"], [TimeoutError, "Deadline"], [AbortError, "Canceled"],
];

function kindOf(error) {
  const found = kinds.find(([kind]) => error instanceof kind);
  if (found) return found[1];
  return error instanceof NatsidError && error.refusal ? "Refused" : "Other";
}

let nc, client, handles;
const calls = new Map(); // AbortControllers of calls under way, by the ID of their JSON-RPC request

/** Returns the handle of a target: one for equal targets. */
function handle(target) {
  if (!client) throw new ClosedError("natsid: there is no connection yet");
  const key = JSON.stringify(target);
  let found = handles.get(key);
  if (!found) {
    const options = { maxBatch: target.maxBatch, prefetch: target.prefetch?.n, maxAge: target.prefetch?.maxAgeMs };
    found = target.snowflake
      ? client.snowflake({ ...options, ...(target.business === undefined ? {} : { business: target.business }) })
      : client.segment(target.tag, options);
    handles.set(key, found);
  }
  return found;
}

const methods = {
  describe: () => ({ language: "TypeScript", client: "natsid", profile: "full", methods: Object.keys(methods) }),
  async connect({ servers, namespace, timeoutMs, failFast }) {
    await nc?.close();
    nc = await connect({
      servers, pingInterval: 1000, maxPingOut: 1, maxReconnectAttempts: -1, reconnectTimeWait: 50, reconnectJitter: 50,
    });
    handles = new Map();
    client = natsid(nc, { namespace, timeout: timeoutMs, failFast, log: console.error });
    return {};
  },
  async next({ target, timeoutMs }, signal) {
    return { id: String(await handle(target).next({ signal, timeout: timeoutMs })) };
  },
  async nextN({ target, n, timeoutMs }, signal) {
    const { runs } = await handle(target).nextN(n, { signal, timeout: timeoutMs });
    return { runs: runs.map(({ first, last }) => [String(first), String(last)]) };
  },
  async burst({ target, calls, timeoutMs }, signal) {
    const from = handle(target);
    const ended = await Promise.allSettled(
      Array.from({ length: calls }, () => from.next({ signal, timeout: timeoutMs })),
    );
    const [ids, counts] = [[], {}];
    for (const { value, reason } of ended) {
      if (value !== undefined) ids.push(String(value));
      else counts[kindOf(reason)] = (counts[kindOf(reason)] ?? 0) + 1;
    }
    return { ids, kinds: counts };
  },
  cancel({ request }) {
    calls.get(request)?.abort();
    return {};
  },
  async disconnect({ drain }) {
    if (drain) void nc.drain();
    else await nc.close();
    return {};
  },
  close() {
    client.close();
    return {};
  },
  stats({ target }) {
    const { usual, ...counts } = handle(target).stats();
    return { ...counts, usualMs: usual };
  },
  decode({ id, layout }) {
    const { timeMs, tick, worker, site, machine, business, sequence } = decode(id, layout);
    return {
      timeMs: String(timeMs), tick: String(tick), worker, site, machine,
      business: String(business), sequence: String(sequence),
    };
  },
};

function errorOf(error) {
  const data = { kind: kindOf(error) };
  if (error instanceof RangeError) Object.assign(data, { code: 400, text: error.message.replace("natsid: ", "") });
  if (error.refusal) Object.assign(data, { code: error.refusal.code, text: error.refusal.text });
  if (["Deadline", "Canceled"].includes(data.kind) && error.cause instanceof NatsidError) {
    data.reason = kindOf(error.cause);
  }
  return { code: -32000, message: error.message, data };
}

async function answer({ id, method, params }) {
  if (!Object.hasOwn(methods, method)) return { error: { code: -32601, message: `no method ${method}` } };
  const call = new AbortController();
  calls.set(id, call);
  try {
    return { result: await methods[method](params ?? {}, call.signal) };
  } catch (error) {
    return { error: errorOf(error) };
  } finally {
    calls.delete(id);
  }
}

for await (const line of createInterface(process.stdin)) {
  const request = JSON.parse(line);
  void answer(request).then((outcome) => {
    process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: request.id, ...outcome })}\n`);
  });
}
process.exit();
