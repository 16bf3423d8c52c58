import type { Msg } from "@nats-io/nats-core";
import type { CallOptions } from "./call.js";
import { badRequest, ErrClosed, ErrDeadlineExceeded, notServed, parseRefusal, refused } from "./errors.js";
import { type Format, parseFormat } from "./format.js";
import type { Handle } from "./handle.js";
import type { Target } from "./target.js";

/** The formats that workers sent, by what their handles ask. */
const kept = new WeakMap<Target, { format: Format; revision: string }>();

/**
 * Returns the format of a tag, which writes its IDs and reads their texts. It is requested once and kept; an answer with
 * IDs says when it was changed, and the next call requests it again. It rejects with {@link ErrBadRequest} if the tag
 * has no format, or one that a later version wrote, and with the errors of `next`. A masked one needs a key: see
 * `formats` of the client's options.
 */
export async function formatOf(handle: Handle, options?: CallOptions): Promise<Format> {
  const { target } = handle;
  const known = kept.get(target);
  if (known && (target.formatRevision ?? known.revision) === known.revision) return known.format;
  const [namespace, kind, ...tag] = target.subject.split(".");
  if (kind !== "segment") throw badRequest("no format is kept for snowflakes: read one with parseFormat and a layout");
  const subject = `${namespace}.format.${tag.join(".")}`;
  const said = target.formatRevision;
  const sent = read(await request(target, subject, options), target, subject);
  const format = parseFormat(sent.format, target.settings.formats);
  kept.set(target, { format, revision: sent.revision });
  if (target.formatRevision === said) target.formatRevision = sent.revision;
  return format;
}

/**
 * Returns the text of one ID, by the format of the tag; `(await formatOf(handle)).read` is the way back. The ID is one of
 * `next`, and so are the errors, beside those of {@link formatOf} and of `format`; an ID that the format cannot write is
 * a hole.
 */
export async function nextText(handle: Handle, options?: CallOptions): Promise<string> {
  const id = await handle.next(options);
  return (await formatOf(handle, options)).format(id);
}

async function request({ settings }: Target, subject: string, options: CallOptions | undefined): Promise<Msg> {
  const timeout = options?.timeout ?? settings.timeout;
  let msg: Msg;
  try {
    msg = await settings.nc.request(subject, "", { timeout });
  } catch (cause) {
    const name = (cause as Error).name;
    if (name === "NoRespondersError") throw notServed(subject);
    if (name === "TimeoutError") throw new ErrDeadlineExceeded(`natsid: no answer on ${subject}`, { cause });
    throw new ErrClosed(`natsid: request on ${subject}`, { cause });
  }
  const refusal = msg.headers && parseRefusal(msg.headers);
  if (refusal) throw refused(refusal);
  return msg;
}

function read(msg: Msg, target: Target, subject: string): { format: string; revision: string } {
  try {
    const { format, revision } = msg.json<{ format: unknown; revision: unknown }>();
    if (typeof format === "string" && typeof revision === "string") return { format, revision };
  } catch {
    // It is no JSON.
  }
  throw target.settings.notNatsid(subject, new Error("it lacks the format"));
}
