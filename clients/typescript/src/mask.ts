/**
 * The keys of masks, `{mask:k1:9}` in a format. A mask hides volume and order; it is not encryption of content, and a
 * width below 32 bits can be searched. A key is for programs that keep it secret, not for browsers.
 *
 * @module
 */
import { createCipheriv, hkdfSync } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { platform } from "node:process";
import { ErrBadRequest } from "./errors.js";

const version = "natsid-mask-key-1"; // the first word of a key file
const rounds = 10n;

/** A secret with a name, under which `{mask:NAME:WIDTH}` masks numbers. What prints a key shows no secret. */
export class Key {
  readonly name: string;
  /** 16 hexadecimal digits that tell keys apart and do not reveal the secret. */
  readonly fingerprint: string;
  readonly #secret: Uint8Array;

  /** @internal */
  constructor(line: string) {
    const [first, name = "", fingerprint, secret = "", ...more] = line.trim().split(/\s+/);
    if (first !== version || fingerprint === undefined || secret === "" || more.length > 0) {
      throw new ErrBadRequest(`it is not one line of "${version}", name, fingerprint and secret`);
    }
    if (!/^[a-z0-9][a-z0-9-]{0,31}$/.test(name)) {
      throw new ErrBadRequest("the name is not 1 to 32 of a-z, 0-9 and '-'");
    }
    if (!/^[0-9a-fA-F]{64}$/.test(secret)) throw new ErrBadRequest("the secret is not 64 hexadecimal digits");
    this.#secret = Buffer.from(secret, "hex");
    this.name = name;
    this.fingerprint = this.#derive(Buffer.from("fingerprint"), 8).toString("hex");
    if (this.fingerprint !== fingerprint) {
      throw new ErrBadRequest("the secret does not have this fingerprint: the file was changed");
    }
  }

  toString(): string {
    return `${this.name} ${this.fingerprint}`;
  }

  /** @internal Returns the mask of the numbers below n, which is 2^20 to 2^63. Masks of two tweaks are unrelated. */
  mask(n: bigint, tweak: string): Mask {
    const size = Buffer.alloc(8);
    size.writeBigUInt64BE(n);
    return new Mask(this.#derive(Buffer.concat([Buffer.from("mask"), size, Buffer.from(tweak)]), 32), n);
  }

  #derive(info: Uint8Array, length: number): Buffer {
    return Buffer.from(hkdfSync("sha256", this.#secret, "", info, length));
  }
}

/**
 * Reads a key that `natsid key new` wrote. The warning says that others can read the file, too; it is "" if they cannot.
 * Throws {@link ErrBadRequest}, which shows no content of the file, or the error of `node:fs`.
 */
export function readKeyFile(path: string): { key: Key; warning: string } {
  const text = readFileSync(path, "latin1");
  const mode = statSync(path).mode & 0o777;
  let warning = "";
  if ((mode & 0o077) !== 0 && platform !== "win32") {
    const octal = mode.toString(8).padStart(4, "0");
    warning = `others can read or write the key file ${path} (mode ${octal}): chmod 600 it`;
  }
  try {
    return { key: new Key(text), warning };
  } catch (error) {
    throw new ErrBadRequest(`mask: key file ${path}: ${(error as Error).message}`);
  }
}

/**
 * A bijection on [0, n): ten rounds of AES-256 in a Feistel network of two halves, sent through again while the number
 * is not below n. The comment of natsid's Go package internal/mask names construction, bounds and sources.
 *
 * @internal
 */
export class Mask {
  readonly #n: bigint;
  readonly #a: bigint; // n <= a*b < n+a
  readonly #b: bigint;
  readonly #block: (input: Buffer) => Buffer;

  constructor(secret: Buffer, n: bigint) {
    this.#n = n;
    this.#a = ceilSqrt(n);
    this.#b = (n + this.#a - 1n) / this.#a;
    const cipher = createCipheriv("aes-256-ecb", secret, null).setAutoPadding(false);
    this.#block = (input) => cipher.update(input);
  }

  /** Returns the mask of x. */
  hide(x: bigint): bigint {
    do {
      let [l, r] = [x % this.#a, x / this.#a];
      for (let i = 0n; i < rounds; i += 2n) {
        l = (l + this.#round(i, r, this.#a)) % this.#a;
        r = (r + this.#round(i + 1n, l, this.#b)) % this.#b;
      }
      x = l + this.#a * r;
    } while (x >= this.#n);
    return x;
  }

  /** Returns the number whose mask is y. */
  show(y: bigint): bigint {
    do {
      let [l, r] = [y % this.#a, y / this.#a];
      for (let i = rounds; i > 0n; i -= 2n) {
        r = (r + this.#b - this.#round(i - 1n, l, this.#b)) % this.#b;
        l = (l + this.#a - this.#round(i - 2n, r, this.#a)) % this.#a;
      }
      y = l + this.#a * r;
    } while (y >= this.#n);
    return y;
  }

  /** Returns floor(AES(i, v) * size / 2^128). */
  #round(i: bigint, v: bigint, size: bigint): bigint {
    const block = Buffer.alloc(16);
    block.writeBigUInt64BE(i);
    block.writeBigUInt64BE(v, 8);
    const sum = this.#block(block);
    return (((sum.readBigUInt64BE() << 64n) | sum.readBigUInt64BE(8)) * size) >> 128n;
  }
}

/** Returns the least a with a*a >= n, for 0 < n <= 2^63. */
function ceilSqrt(n: bigint): bigint {
  let a = BigInt(Math.floor(Math.sqrt(Number(n)))); // off by one at most
  while (a * a >= n) a--;
  while (a * a < n) a++;
  return a;
}
