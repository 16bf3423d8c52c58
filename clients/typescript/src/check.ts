import type { SegmentOptions } from "./handle.js";
import { bytes, duration, excerpt } from "./text.js";

// What this client refuses before it is sent, with the texts that Go's package client has.

function malformed(text: string): never {
  throw new RangeError(`natsid: ${text}`);
}

function mustBeText(what: string, given: unknown): void {
  if (typeof given !== "string") throw new TypeError(`natsid: the ${what} is of type ${typeof given}, want a string`);
}

const maxTag = 128;
const reserved = "_natsid";

/** The longest time for which IDs may be held, in ms. */
const maxPrefetchAge = 3_600_000;

/** Throws if a tag is malformed. */
export function checkTag(tag: string): void {
  mustBeText("tag", tag);
  if (tag === "") {
    malformed(
      "the tag is empty: give it as <namespace>.segment.<tag>, or in the JSON of a request about tags",
    );
  }
  if (tag === reserved || tag.startsWith(`${reserved}.`)) {
    malformed(
      `the tag is ${reserved} or begins with ${reserved}., which are keys of natsid's own: choose another`,
    );
  }
  const text = bytes(tag);
  if (text.length > maxTag) malformed(`the tag has ${text.length} bytes, want at most ${maxTag}`);
  for (let i = 0; i < text.length; i++) {
    if (!/[\w\-/=.]/.test(String.fromCharCode(text[i]!))) {
      const at = excerpt(text.subarray(i, i + 1), 1);
      malformed(`byte ${i} of the tag is ${at}, want A-Z a-z 0-9 - _ / = .`);
    }
    if (tag[i] === "." && (i === 0 || i === tag.length - 1 || tag[i - 1] === ".")) {
      malformed(`byte ${i} of the tag is a dot, which must not be first, last, or next to a dot`);
    }
  }
}

/** Throws if a namespace is malformed. */
export function checkNamespace(ns: string): void {
  mustBeText("namespace", ns);
  const { length } = bytes(ns);
  if (length < 1 || length > 32) {
    malformed(`namespace ${JSON.stringify(ns)}: want 1 to 32 bytes, have ${length}`);
  }
  const at = /[^\w-]/.exec(ns);
  if (at) malformed(`namespace ${JSON.stringify(ns)}: byte ${at.index} is '${at[0]}', want A-Z a-z 0-9 - _`);
}

/** Throws if a timeout, in ms, is invalid. */
export function checkTimeout(timeout: number): void {
  if (!(typeof timeout === "number" && timeout >= 0)) {
    malformed(`the timeout is "${timeout}", want a number of milliseconds`);
  }
}

/** Throws if a count of IDs is out of range. */
export function checkCount(n: number): void {
  if (!(Number.isSafeInteger(n) && n >= 1 && n <= 10_000_000)) malformed(`${n} IDs: want 1 to 10000000`);
}

/** Throws if an option of a handle is invalid. */
export function checkOptions({ prefetch = 0, maxAge = 0, maxBatch = 0 }: SegmentOptions): void {
  if (!(Number.isSafeInteger(prefetch) && prefetch >= 0 && maxAge >= 0 && maxAge <= maxPrefetchAge)) {
    malformed(
      `prefetch ${prefetch}, ${duration(maxAge)}: want at least 1, and an age up to ${duration(maxPrefetchAge)}`,
    );
  }
  if (maxAge > 0 && prefetch === 0) malformed("maxAge without prefetch: no IDs are held");
  if (!(Number.isSafeInteger(maxBatch) && maxBatch >= 0)) malformed(`maxBatch is ${maxBatch}, want at least 0`);
}
