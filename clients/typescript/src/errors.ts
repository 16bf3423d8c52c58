import type { MsgHdrs } from "@nats-io/nats-core";

/** Why a worker, or this client in its place, refuses a request. */
export interface Refusal {
  /** 400, 404, 409, 410, 429, 500 or 503, as in the header Nats-Service-Error-Code. */
  code: number;
  /** The text of the header Nats-Service-Error. */
  text: string;
  /** The largest count that would not have been refused; absent where a smaller count does not help. */
  maxBatch?: number;
  /** How long to wait before the request is repeated, in ms; absent where the refusal does not say. */
  retryAfter?: number;
}

/** The base of the errors of this package. {@link is} finds one of their classes among the causes of an error, too. */
export class NatsidError extends Error {
  override name = "NatsidError";
  /** The refusal, where a worker or this client refused the request. */
  readonly refusal: Refusal | undefined;

  constructor(message: string, options?: ErrorOptions & { refusal?: Refusal }) {
    super(message, options);
    this.refusal = options?.refusal;
  }
}

/** No worker serves the subject. Start natsid on this NATS, in this namespace. */
export class ErrNotServed extends NatsidError {
  override name = "ErrNotServed";
}

/** Workers cannot issue now (503). Ask again later; the log of the workers says why. */
export class ErrUnavailable extends NatsidError {
  override name = "ErrUnavailable";
}

/** Too many requests (429). Back off. */
export class ErrThrottled extends NatsidError {
  override name = "ErrThrottled";
}

/** The request is malformed (400). Fix it; to ask again cannot help. */
export class ErrBadRequest extends NatsidError {
  override name = "ErrBadRequest";
}

/** There is no such tag (404). Create it, as with `natsid tag create`. */
export class ErrUnknownTag extends NatsidError {
  override name = "ErrUnknownTag";
}

/**
 * Fewer numbers than requested are left of the tag, or of its day, month or year (410). `refusal.maxBatch` says how
 * many. Raise the tag's maximum, or wait for the next period.
 */
export class ErrUsedUp extends NatsidError {
  override name = "ErrUsedUp";
}

/**
 * The reply is not one of natsid's, but for example of another program or a JetStream stream on the same subject.
 * Stop that from answering.
 */
export class ErrNotNatsid extends NatsidError {
  override name = "ErrNotNatsid";
}

/** Too many calls of this handle wait already. Nothing was sent. Slow down, or find out why natsid does not answer. */
export class ErrBusy extends NatsidError {
  override name = "ErrBusy";
}

/** The client or its connection is closed. */
export class ErrClosed extends NatsidError {
  override name = "ErrClosed";
}

/**
 * The time of the call was up, by its timeout or by an `AbortSignal.timeout`. The cause is the reason why there was no
 * ID until then, such as {@link ErrNotServed}, if there is one. Its name is that of the platform, "TimeoutError".
 */
export class ErrDeadlineExceeded extends NatsidError {
  override name = "TimeoutError";
}

/**
 * The signal of the call was aborted. The cause is the reason why there was no ID until then, if there is one, else
 * the reason of the signal. Its name is that of the platform, "AbortError".
 */
export class ErrCanceled extends NatsidError {
  override name = "AbortError";
}

/** Reports whether an error, or one of its causes, is of a class: `is(error, ErrThrottled)`. */
export function is<E extends Error>(error: unknown, kind: abstract new (...args: never[]) => E): error is Error {
  for (let e = error; e instanceof Error; e = e.cause) {
    if (e instanceof kind) return true;
  }
  return false;
}

const kinds: Record<number, typeof NatsidError> = {
  400: ErrBadRequest,
  404: ErrUnknownTag,
  410: ErrUsedUp,
  429: ErrThrottled,
  503: ErrUnavailable,
};

/** @internal Returns the error of a refusal. */
export function refused(refusal: Refusal): NatsidError {
  const kind = kinds[refusal.code] ?? NatsidError;
  return new kind(`natsid: refused: ${refusal.code}: ${refusal.text}`, { refusal });
}

/** @internal Returns the error of a request that this client refuses before it is sent. */
export function badRequest(text: string): NatsidError {
  return refused({ code: 400, text });
}

const decimal = /^(?:0|[1-9]\d{0,9})$/;
const most = 2 ** 31 - 1;

/** @internal Returns the refusal in the headers of a reply, or undefined if they have no code. */
export function parseRefusal(headers: MsgHdrs): Refusal | undefined {
  const code = headers.get("Nats-Service-Error-Code");
  if (!code) return undefined;
  const text = headers.get("Nats-Service-Error");
  if (!/^[+-]?\d{1,15}$/.test(code)) return { code: 500, text: `code ${JSON.stringify(code)}: ${text}` };
  const refusal: Refusal = { code: Number(code), text };
  const maxBatch = positive(headers.get("Natsid-Max-Batch"));
  const retryAfter = positive(headers.get("Natsid-Retry-After-Ms"));
  if (maxBatch) refusal.maxBatch = maxBatch;
  if (retryAfter) refusal.retryAfter = retryAfter;
  return refusal;
}

/** Returns the number that a header spells; 0 if it is absent or malformed. */
function positive(text: string): number {
  const n = decimal.test(text) ? Number(text) : 0;
  return n <= most ? n : 0;
}

/** @internal Returns the error of a subject that has no responders. */
export function notServed(subject: string): NatsidError {
  return new ErrNotServed(`natsid: no worker on ${subject}; does natsid run on this NATS, in this namespace?`);
}
