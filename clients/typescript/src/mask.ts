/**
 * The keys of masks, `{mask:k1:9}` in a format. A mask hides volume and order; it is not encryption of content, and a
 * width below 10 digits can be searched. A key is for programs that keep it secret, not for browsers.
 *
 * @module
 */
import { createCipheriv } from "node:crypto";

/** A secret of 32 bytes. What prints a key does not show it. */
export class Key {
  readonly #secret: Uint8Array;

  constructor(secret: Uint8Array) {
    this.#secret = secret;
  }

  /** @internal Returns the mask of numbers of 6 to 18 digits. Throws the reason why the key has none. */
  mask(width: number): Mask {
    if (this.#secret.length !== 32) throw new Error(`it has ${this.#secret.length} bytes, want 32`);
    return new Mask(this.#secret, width);
  }
}

const rounds = 10;

/**
 * FF1 of NIST SP 800-38G in radix 10, as natsid's Go package format has it: both halves of a number are below 10^9.
 *
 * @internal
 */
export class Mask {
  readonly #width: number;
  readonly #sizes: readonly [bigint, bigint]; // how many values the halves have
  readonly #room: number; // in so many bytes stands a half
  readonly #block: (input: Buffer) => Buffer;

  constructor(secret: Uint8Array, width: number) {
    const half = Math.floor(width / 2);
    this.#width = width;
    this.#sizes = [10n ** BigInt(half), 10n ** BigInt(width - half)];
    this.#room = Math.ceil((this.#sizes[1] - 1n).toString(2).length / 8);
    const cipher = createCipheriv("aes-256-ecb", secret, null).setAutoPadding(false);
    this.#block = (input) => cipher.update(input);
  }

  hide(n: bigint, tweak: string): bigint {
    const f = this.#round(tweak);
    let [a, b] = [n / this.#sizes[1], n % this.#sizes[1]];
    for (let i = 0; i < rounds; i++) [a, b] = [b, (a + f(i, b)) % this.#sizes[i % 2]!];
    return a * this.#sizes[1] + b;
  }

  /** Undoes hide. */
  show(n: bigint, tweak: string): bigint {
    const f = this.#round(tweak);
    let [a, b] = [n / this.#sizes[1], n % this.#sizes[1]];
    for (let i = rounds - 1; i >= 0; i--) {
      const size = this.#sizes[i % 2]!;
      [a, b] = [(b + size - (f(i, a) % size)) % size, a];
    }
    return a * this.#sizes[1] + b;
  }

  /** Returns the round function of a tweak. What precedes the last block is the same in each round. */
  #round(tweak: string): (i: number, half: bigint) => bigint {
    const t = Buffer.from(tweak);
    const text = Buffer.alloc(16 * Math.ceil((16 + t.length + 1 + this.#room) / 16));
    text.set([1, 2, 1, 0, 0, 10, 10, Math.floor(this.#width / 2), 0, 0, 0, this.#width]);
    text.writeUInt32BE(t.length, 12);
    text.set(t, 16);
    let state: Buffer = text.subarray(0, 16);
    for (let at = 16; at < text.length; at += 16) {
      state = this.#block(state);
      for (let i = 0; i < 16; i++) state[i]! ^= text[at + i]!;
    }
    const low = state.readBigUInt64BE(8);
    return (i, half) => {
      state.writeBigUInt64BE(low ^ (BigInt(i) << BigInt(8 * this.#room)) ^ half, 8);
      return this.#block(state).readBigUInt64BE() % 1_000_000_000n;
    };
  }
}
