import { bytes, excerpt } from "./text.js";

/** @internal The highest ID. */
export const maxID: bigint = 2n ** 63n - 1n;

/** Reads an ID from a text, as from JSON: an ID has one spelling. Throws a RangeError. */
export function parseID(text: string): bigint {
  const id = /^(0|[1-9]\d{0,18})$/.test(text) ? BigInt(text) : -1n;
  if (id >= 0n && id <= maxID) return id;
  throw new RangeError(
    `natsid: ${excerpt(bytes(text).subarray(0, 40), 40)} is not an ID: want a decimal of 0 to 2^63-1 ` +
      "without sign, space or leading zero",
  );
}
