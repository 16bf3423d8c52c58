import { Call, type CallOptions } from "./call.js";
import { refusalIn, TagExistsError } from "./errors.js";
import { type Settings, Target } from "./target.js";
import { longest } from "./timer.js";

/** What a tag is like. What is left out agrees with any value of a tag that exists. */
export interface TagSettings {
  /** IDs that a load reserves at least. */
  step?: number;
  /** The first ID; a tag that exists agrees if its next one is not lower. */
  start?: number | bigint;
  description?: string;
  /** The lowest and the highest number, of each period if the tag has one. */
  min?: number | bigint;
  max?: number | bigint;
  /** How many IDs a crash of one worker can waste at most. */
  maxHole?: number | bigint;
  /** When the numbers begin again, and the time zone of that; UTC if it is left out. */
  period?: "daily" | "monthly" | "yearly";
  zone?: string;
  /** The IDs rise over all workers. The order of a tag never changes. */
  strict?: boolean;
}

type Info = Record<string, string | number | boolean | undefined>;

/**
 * Creates a tag unless there is one that agrees.
 *
 * @internal
 */
export async function ensureTag(
  settings: Settings, ns: string, tag: string, wanted: TagSettings, options: CallOptions,
): Promise<void> {
  const { maxHole, period, zone, ...rest } = wanted;
  const want: Info = { tag };
  const all = { ...rest, max_hole: maxHole, period, zone: zone ?? (period && "") };
  for (const [key, value] of Object.entries(all)) {
    if (value !== undefined) want[key] = typeof value === "bigint" ? String(value) : value;
  }
  const timeUp = AbortSignal.timeout(Math.min(options.timeout ?? settings.timeout, longest));
  const signal = options.signal ? AbortSignal.any([options.signal, timeUp]) : timeUp;
  for (let isFirst = true; ; isFirst = false) {
    const [is] = (await ask(settings, `${ns}.tag.list`, { tag }, signal)) as Info[];
    if (is && !is["disabled"]) return agrees(is, want);
    try {
      await ask(settings, `${ns}.tag.create`, want, signal);
      return;
    } catch (error) {
      if (!isFirst || !(error instanceof TagExistsError)) throw error; // another program may create it in between
    }
  }
}

/** Throws the error that names the first setting in which a tag differs from the one wanted. */
function agrees(is: Info, want: Info): void {
  for (const [key, value] of Object.entries(want)) {
    const [name, now] = key === "start" ? ["next ID", is["next_id"]] : [key, is[key]];
    const text = String(now ?? (typeof value === "boolean" ? false : ""));
    if (key === "start" ? BigInt(text) >= BigInt(String(value)) : text === String(value)) continue;
    throw new TagExistsError(
      `natsid: tag ${is["tag"]} exists, and its ${name} is "${text}", not "${value}": change it with natsid tag update`,
    );
  }
}

/** Sends a request once, and returns the JSON of its answer. */
async function ask(settings: Settings, subject: string, body: unknown, signal: AbortSignal): Promise<unknown> {
  const target = new Target(settings, subject, 1);
  const { inbox, nc } = settings;
  const closed = inbox.check();
  if (closed || signal.aborted) throw closed ?? target.gaveUp(signal, true);
  let token = "";
  const call = new Call<unknown>(target, { gaveUp: () => inbox.forget(token) }, { signal });
  token = inbox.expect({
    receive(_, msg, error) {
      const failure = msg ? refusalIn(msg, subject) : error;
      if (failure) return call.reject(failure);
      try {
        call.resolve(msg!.json());
      } catch (fault) {
        call.reject(settings.notNatsid(subject, fault as Error));
      }
    },
  });
  nc.publish(subject, JSON.stringify(body), { reply: inbox.replyTo(token) });
  return call.promise;
}
