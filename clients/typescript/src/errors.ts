import type { Msg } from "@nats-io/nats-core";

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

const brand = Symbol.for("natsid.error");

/**
 * The base of the errors of this package. Malformed arguments are a RangeError or a TypeError, and nothing is sent.
 * An error of another copy of the package is an instance of the class of its name, too.
 */
export class NatsidError extends Error {
  /** @internal */
  static readonly kind: string = "NatsidError";
  /** The refusal, where a worker refused the request. */
  readonly refusal: Refusal | undefined;

  constructor(message: string, options?: ErrorOptions & { refusal?: Refusal }) {
    super(message, options);
    this.name = new.target.kind;
    this.refusal = options?.refusal;
    Object.defineProperty(this, brand, { value: true });
  }

  static override [Symbol.hasInstance](error: unknown): boolean {
    if (!(Object(error) === error && brand in (error as object))) return false;
    return this.kind === "NatsidError" || this.kind === (error as Error).name;
  }
}

/** No worker serves the subject, as where natsid runs on another NATS or in another namespace. Start it on this one. */
export class NotServedError extends NatsidError {
  static override readonly kind: string = "NotServedError";
}

/**
 * Workers cannot issue now (503), as while JetStream has no leader, or before an operator resumes a registry that is
 * stopped. Ask again later; the log of the workers says why.
 */
export class UnavailableError extends NatsidError {
  static override readonly kind: string = "UnavailableError";
}

/** Too many requests (429), as beyond the rate of the tag. Back off. */
export class ThrottledError extends NatsidError {
  static override readonly kind: string = "ThrottledError";
}

/** A worker calls the request malformed (400), as a prefetch of a strict tag. Fix it; to ask again cannot help. */
export class BadRequestError extends NatsidError {
  static override readonly kind: string = "BadRequestError";
}

/** There is no such tag (404), as where it was deleted, or its name is misspelt. Create it. */
export class UnknownTagError extends NatsidError {
  static override readonly kind: string = "UnknownTagError";
}

/** There is such a tag already, with other settings (409). Use it, or change it. */
export class TagExistsError extends NatsidError {
  static override readonly kind: string = "TagExistsError";
}

/**
 * Fewer numbers than requested are left of the tag, or of its day, month or year (410). `refusal.maxBatch` says how
 * many. Raise the tag's maximum, or wait for the next period.
 */
export class UsedUpError extends NatsidError {
  static override readonly kind: string = "UsedUpError";
}

/**
 * The reply is not one of natsid's, but for example of another program or a JetStream stream on the same subject.
 * Stop that from answering.
 */
export class NotNatsidError extends NatsidError {
  static override readonly kind: string = "NotNatsidError";
}

/**
 * Too many calls of this handle wait already, as while NATS is away. Nothing was sent. Slow down, or find out why natsid
 * does not answer.
 */
export class BusyError extends NatsidError {
  static override readonly kind: string = "BusyError";
}

/** The client or its connection is closed, as in a handler that outlives its server. */
export class ClosedError extends NatsidError {
  static override readonly kind: string = "ClosedError";
}

/**
 * The time of the call was up, by its timeout or by an `AbortSignal.timeout`. The cause is the reason why there was no
 * ID until then, such as {@link NotServedError}, if there is one.
 */
export class TimeoutError extends NatsidError {
  static override readonly kind: string = "TimeoutError";
}

/**
 * The signal of the call was aborted. The cause is the reason why there was no ID until then, if there is one, else
 * the reason of the signal.
 */
export class AbortError extends NatsidError {
  static override readonly kind: string = "AbortError";
}

const kinds: Record<number, typeof NatsidError> = {
  400: BadRequestError,
  404: UnknownTagError,
  409: TagExistsError,
  410: UsedUpError,
  429: ThrottledError,
  503: UnavailableError,
};

function refused(refusal: Refusal): NatsidError {
  const kind = kinds[refusal.code] ?? NatsidError;
  return new kind(`natsid: refused: ${refusal.code}: ${refusal.text}`, { refusal });
}

const decimal = /^(?:0|[1-9]\d{0,9})$/;
const most = 2 ** 31 - 1;

/** @internal Returns why a reply to a request on a subject is no answer, if it says so. */
export function refusalIn({ headers, data }: Msg, subject: string): NatsidError | undefined {
  if (headers?.code === 503 && data.length === 0) {
    return new NotServedError(`natsid: no worker on ${subject}; does natsid run on this NATS, in this namespace?`);
  }
  const code = headers?.get("Nats-Service-Error-Code");
  if (!code) return undefined;
  const text = headers!.get("Nats-Service-Error");
  if (!/^[+-]?\d{1,15}$/.test(code)) return refused({ code: 500, text: `code ${JSON.stringify(code)}: ${text}` });
  const refusal: Refusal = { code: Number(code), text };
  const maxBatch = positive(headers!.get("Natsid-Max-Batch"));
  const retryAfter = positive(headers!.get("Natsid-Retry-After-Ms"));
  if (maxBatch) refusal.maxBatch = maxBatch;
  if (retryAfter) refusal.retryAfter = retryAfter;
  return refused(refusal);
}

/** Returns the number that a header spells; 0 if it is absent or malformed. */
function positive(text: string): number {
  const n = decimal.test(text) ? Number(text) : 0;
  return n <= most ? n : 0;
}
