import { NatsidError } from "./errors.js";
import { maxID, parseID } from "./id.js";
import { decode, type Layout, layoutOf } from "./layout.js";
import type { Key, Mask } from "./mask.js"; // browsers have no node:crypto, and no keys
import { bytes, excerpt } from "./text.js";

export type { Key, Layout };

/** How an ID is read and written. */
export interface FormatOptions {
  /** The IDs are snowflakes of this layout, as in `decode`: `{date:…}` is their time in UTC, `{business}` is theirs. */
  layout?: string | Layout;
  /** In Crockford's base32, read takes o as 0, i and l as 1, and lower case. */
  lenient?: boolean;
  /** The tag of the IDs, on which a mask depends. */
  tag?: string;
  /** The keys of masks, by the names that formats call them. */
  keys?: Readonly<Record<string, Key>>;
}

/** A text is not of a format. */
export class ReadError extends NatsidError {
  static override readonly kind: string = "ReadError";
  /** The byte of the text, from 0. */
  readonly at: number;
  /** What is wrong there. */
  readonly reason: string;

  constructor(at: number, reason: string) {
    super(`format: byte ${at} of the text: ${reason}`);
    this.at = at;
    this.reason = reason;
  }
}

type Kind =
  | "literal" | "year" | "month" | "day" | "number" | "hour" | "minute" | "second" | "millisecond" | "business"
  | "check digit";
type Values = Partial<Record<Kind, bigint>>;

/** A piece of the text: literal text, or a value in digits. What is written is less than the value by `base`. */
interface Part {
  kind: Kind;
  text: string;
  set: string;
  width: number;
  grows?: boolean;
  base: bigint;
  max: bigint;
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const decimal = alphabet.slice(0, 10);
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const radix = "crockford|[2-9]|[1-5]\\d|6[0-2]";
const piece = new RegExp("^(?:" + [
  "\\{\\{|\\}\\}|[ -z|~]", "\\{id(?::([1-9]\\d?))?\\}", `\\{id:([1-9]\\d?)?:(${radix})\\}`, "\\{date:([^{}]+)\\}",
  "\\{business\\}", "\\{check\\}", `\\{mask:([a-z0-9][a-z0-9-]{0,31}):([6-9]|1[0-8])\\}`,
].join("|") + ")");
const field = /yyyy|yy|MM|dd|HH|mm|ss|SSS|[^]/gu;
const fields: Record<string, Kind> = {
  yyyy: "year", yy: "year", MM: "month", dd: "day", HH: "hour", mm: "minute", ss: "second", SSS: "millisecond",
};
const wantPart = "want {id}, {id:WIDTH}, {id:WIDTH:RADIX} with a radix from 2 to 62 or crockford, " +
  "{mask:KEY:WIDTH} with a width from 6 to 18, {date:PATTERN} of yyyy, yy, MM, dd, HH, mm, ss, SSS and separators, " +
  "{business}, {check}, or {{ for a brace";
const ambiguous = "what is beside it could be its digit";

/** Damm's quasigroup of order 10, and 2(x+y) in GF(32) by x^5+x^2+1. */
const quasigroup = "03175986427092154863420687135917509834266123045978" +
  "36742095815869720134894536201794386172052581436790";
const sums: Record<string, (interim: number, digit: number) => number> = {
  [decimal]: (interim, digit) => Number(quasigroup[10 * interim + digit]),
  [crockford]: (interim, digit) => ((interim ^ digit) << 1) ^ (((interim ^ digit) >> 4) * 37),
};

/** How many numbers a day, a month and a year have. */
const sizes = { day: 10n ** 8n, month: 10n ** 10n, year: 10n ** 12n };
const dates = ["year", "month", "day"] as const;
const lastYear = 9006n;

/**
 * Reads a format, such as `SO-{date:yyyyMMdd}-{id:6}-{check}`. Throws a RangeError, which names the place and
 * the reason of a fault. Formats are those of natsid's Go package format, with the same texts and errors: in a radix
 * above 36 the texts of different IDs may differ in case alone, so that a column which ignores case takes them as equal.
 */
export function parseFormat(text: string, options: FormatOptions = {}): Format {
  return new Format(text, options);
}

/** Writes IDs as texts, and reads them. */
export class Format {
  /** The highest number that {id} or {mask} can have, of a daily tag the highest of a day. */
  readonly max: bigint;
  readonly #text: string;
  readonly #parts: Part[];
  readonly #layout: Required<Layout> | undefined;
  readonly #finest: (typeof dates)[number] | undefined;
  readonly #mask: Mask | undefined;
  readonly #tag: string;
  readonly #sum: (interim: number, digit: number) => number;
  readonly #lenient: boolean;

  /** @internal */
  constructor(text: string, { layout, lenient = false, tag = "", keys = {} }: FormatOptions) {
    const p = new Parser(text, layout === undefined ? undefined : layoutOf(layout), tag, keys);
    this.#text = text;
    this.#parts = p.parts;
    this.#layout = p.layout;
    this.#finest = p.finest;
    this.#mask = p.mask;
    this.#tag = tag;
    this.#sum = p.sum;
    this.#lenient = lenient;
    this.max = p.max;
  }

  /** Returns the text that was parsed. */
  toString(): string {
    return this.#text;
  }

  /** Returns the text of an ID. Throws a RangeError, as for an ID above its highest number. */
  format(id: bigint | string): string {
    if (typeof id === "string") id = parseID(id);
    const v = this.#split(id);
    if (typeof v === "string") throw new RangeError(`format: the format cannot write the ID ${id}: ${v}`);
    v.number = this.#mask?.hide(v.number!, this.#tweak(id)) ?? v.number!;
    let [text, interim] = ["", 0];
    for (const p of this.#parts) {
      const digits = p.kind === "check digit" ? p.set[interim]! : write(p, v[p.kind]!);
      for (const c of digits) interim = this.#sum(interim, p.set.indexOf(c));
      text += p.text + digits;
    }
    return text;
  }

  /** Returns the ID whose text this is. Throws {@link ReadError}. */
  read(text: string): bigint {
    const v: Values = { month: 0n, day: 0n };
    const places: Partial<Record<Kind, number>> = {};
    let [at, interim] = [0, 0];
    for (const p of this.#parts) {
      const from = at;
      if (!text.startsWith(p.text, from)) throw new ReadError(from, `want ${JSON.stringify(p.text)}`);
      let n = 0n;
      for (at += p.text.length; at < text.length && (p.grows || at < from + p.width); at++) {
        const digit = value(p, text[at]!, this.#lenient);
        if (digit < 0) break;
        if (at >= from + p.width && n <= highest(p.set, p.width - 1)) {
          throw new ReadError(from, `a zero too many: the number has at least ${p.width} digits`);
        }
        const next = n * BigInt(p.set.length) + BigInt(digit);
        if (next > p.max) throw new ReadError(from, `the ${p.kind} is above ${p.max}`);
        n = next;
        interim = this.#sum(interim, digit);
      }
      if (at < from + p.width) throw new ReadError(at, `want the ${p.kind} in ${p.width} digits`);
      places[p.kind] = from;
      v[p.kind] = p.kind === "check digit" ? BigInt(interim) : n + p.base;
    }
    if (at < text.length) throw new ReadError(at, "want the end of the text");
    const id = this.#join(v);
    const own = this.#split(id);
    if (typeof own === "string") throw new ReadError(places[this.#finest ?? "number"]!, own);
    for (const { kind } of this.#parts) {
      if (kind !== "literal" && v[kind] !== own[kind]) {
        throw new ReadError(places[kind]!, `wrong ${kind}: it is not that of the other digits`);
      }
    }
    return id - v.number! + (this.#mask?.show(v.number!, this.#tweak(id)) ?? v.number!);
  }

  /** Returns the tweak of an ID's mask. */
  #tweak(id: bigint): string {
    return this.#finest ? `${this.#tag}/${id / sizes[this.#finest]}` : this.#tag;
  }

  #join(v: Values): bigint {
    if (!this.#finest) return v.number!;
    const size = sizes[this.#finest];
    const date = v.year! * 10000n + v.month! * 100n + v.day!;
    return ((date * 10n ** 8n) / size) * size + v.number!;
  }

  /** Returns the values of an ID's parts, or the reason why it has none. */
  #split(id: bigint): Values | string {
    let v: Values = { number: id };
    if (this.#layout) {
      try {
        const { timeMs, business } = decode(id, this.#layout);
        v = { ...time(timeMs), number: id, business };
      } catch (error) {
        return (error as Error).message;
      }
    }
    if (this.#finest) {
      const size = sizes[this.#finest];
      v = day(id, this.#finest);
      const last = 2000 + (Number(v.year!) % 400); // any year that is as long
      const days = BigInt(new Date(Date.UTC(last, Number(v.month), 0)).getUTCDate());
      const exists = id >= 0n && v.year! >= 1n && v.year! <= lastYear && v.month! >= 1n && v.month! <= 12n &&
        v.day! >= 1n && v.day! <= days;
      if (!exists) return `there is no ${this.#finest} ${id / size}`;
    }
    v["check digit"] = 0n;
    for (const { kind, base, max } of this.#parts) {
      const n = (v[kind] ?? 0n) - base;
      if (n < 0n || n > max) return `the ${kind} is ${n + base}, want ${base} to ${base + max}`;
    }
    return v;
  }
}

/** Returns the date and the number of a tag's ID. */
function day(id: bigint, finest: (typeof dates)[number]): Values {
  const size = sizes[finest];
  const date = ((id / size) * size) / 10n ** 8n + { day: 0n, month: 1n, year: 101n }[finest];
  return { year: date / 10000n, month: (date / 100n) % 100n, day: date % 100n, number: id % size };
}

const cycle = 146097n * 86_400_000n; // of the calendar, 400 years

/** Returns the fields of a time in UTC, also of one that a Date cannot hold. */
function time(ms: bigint): Values {
  const d = new Date(Number(ms % cycle));
  return {
    year: BigInt(d.getUTCFullYear()) + 400n * (ms / cycle),
    month: BigInt(d.getUTCMonth() + 1),
    day: BigInt(d.getUTCDate()),
    hour: BigInt(d.getUTCHours()),
    minute: BigInt(d.getUTCMinutes()),
    second: BigInt(d.getUTCSeconds()),
    millisecond: BigInt(d.getUTCMilliseconds()),
  };
}

function highest(set: string, width: number): bigint {
  const n = BigInt(set.length) ** BigInt(width) - 1n;
  return n < maxID ? n : maxID;
}

/** Returns the value of a digit, -1 for another character. */
function value(p: Part, c: string, lenient: boolean): number {
  if (lenient && p.set === crockford && /^[A-Za-z]$/.test(c)) {
    c = c.toUpperCase().replace("O", "0").replace(/[IL]/, "1");
  }
  return p.set.indexOf(c);
}

/** Returns the digits of a radix, decimals without one. */
function digitsOf(radix = "10"): string {
  return radix === "crockford" ? crockford : alphabet.slice(0, Number(radix));
}

/** Returns a value in digits, "" for literal text. */
function write(p: Part, v: bigint): string {
  if (p.kind === "literal") return "";
  const radix = BigInt(p.set.length);
  let text = "";
  for (let n = v - p.base; n > 0n || text.length < p.width; n /= radix) text = p.set[Number(n % radix)] + text;
  return text;
}

/** Reads a format. */
class Parser {
  readonly text: string;
  readonly layout: Required<Layout> | undefined;
  readonly parts: Part[] = [];
  max = maxID;
  finest: (typeof dates)[number] | undefined;
  mask: Mask | undefined;
  sum: (interim: number, digit: number) => number = () => 0;
  readonly #tag: string;
  readonly #keys: Readonly<Record<string, Key>>;
  #at = 0;
  #id: Part | undefined;
  readonly #places: Partial<Record<Kind, number>> = {};
  /** Texts before and behind {id}, with 0 for what varies. */
  readonly #beside: [string, string] = ["", ""];

  constructor(text: string, layout: Required<Layout> | undefined, tag: string, keys: Readonly<Record<string, Key>>) {
    this.text = text;
    this.layout = layout;
    this.#tag = tag;
    this.#keys = keys;
    const length = bytes(text).length;
    if (length > 128) throw new RangeError(`format: ${length} bytes, want at most 128`);
    while (this.#at < text.length) {
      const m = piece.exec(text.slice(this.#at));
      if (!m) this.#fail(text[this.#at] === "{" ? wantPart : "want printable ASCII, and }} for a brace");
      this.#piece(m);
      this.#at += m[0].length;
    }
    this.#finish();
  }

  #fail(fault: string, at = this.#at): never {
    throw new RangeError(`format: byte ${at} of ${excerpt(bytes(this.text), Infinity)}: ${fault}`);
  }

  #piece([whole, width, widthToo, radix, pattern, key, widthOfMask]: string[]): void {
    if (whole!.startsWith("{id")) {
      this.#add("number", digitsOf(radix), Number(width ?? widthToo ?? 0));
    } else if (key !== undefined) {
      this.#mask(key, Number(widthOfMask));
      this.#add("number", decimal, Number(widthOfMask));
    } else if (pattern !== undefined) {
      this.#date(pattern.match(field)!);
    } else if (whole === "{business}") {
      this.#add("business", decimal, String((1n << BigInt(this.layout?.business ?? 0)) - 1n).length);
    } else if (whole === "{check}") {
      this.#add("check digit", this.#id?.set ?? "", 1);
    } else {
      this.#literal(whole![0]!);
    }
  }

  #mask(name: string, width: number): void {
    if (this.layout) this.#fail("snowflakes are not masked: want {id}");
    const key = Object.hasOwn(this.#keys, name) ? this.#keys[name] : undefined;
    if (!key) this.#fail(`there is no key named ${name}`);
    if (!this.#tag) this.#fail("a mask is that of a tag: its name is missing");
    try {
      this.mask = key.mask(width);
    } catch (error) {
      this.#fail(`the key ${name}: ${(error as Error).message}`);
    }
  }

  #date(names: string[]): void {
    if (names.some((name) => name.length === 1 && !/[ -/:-@[-_|~]/.test(name) || name.charCodeAt(0) > 126)) {
      this.#fail(wantPart);
    }
    for (const name of names) {
      const kind = fields[name];
      if (kind) this.#add(kind, decimal, name.length, name === "yy" ? 2000n : 0n);
      else this.#literal(name);
    }
  }

  #literal(text: string): void {
    this.#beside[this.#id ? 1 : 0] += text;
    const last = this.parts.at(-1);
    if (last?.kind === "literal") last.text += text;
    else this.parts.push({ kind: "literal", text, set: "", width: 0, base: 0n, max: 0n });
  }

  /** Adds a part that varies. */
  #add(kind: Kind, set: string, width: number, base = 0n): void {
    const isTags = ["year", "month", "day", "number", "check digit"].includes(kind);
    if (kind in this.#places) this.#fail(`a second ${kind}`);
    if ("check digit" in this.#places) this.#fail("want {check} behind all that it checks");
    if ((!isTags && !this.layout) || (kind === "business" && !this.layout?.business)) {
      this.#fail(`these IDs have no ${kind}`);
    }
    const part: Part = { kind, text: "", set, width, base, max: highest(set, width) };
    if (kind === "check digit") {
      const sum = sums[set];
      if (!sum) {
        this.#fail("want {check} behind an {id} in decimals or crockford: there is none for another radix");
      }
      this.sum = sum;
    }
    if (kind !== "number") this.#beside[this.#id ? 1 : 0] += "0";
    else this.#id = part;
    this.#places[kind] = this.#at;
    this.parts.push(part);
  }

  /** Sets the date and the highest number, and refuses what is ambiguous. */
  #finish(): void {
    const id = this.#id;
    if (!id) this.#fail("want an {id}");
    const [before, after] = this.#beside;
    if (before.startsWith(" ")) this.#fail("want no space at the start of texts, where it is lost easily", 0);
    if (after.endsWith(" ")) this.#fail("want no space at the end of texts, where it is lost easily");
    const l = this.layout;
    if (l) this.max = (1n << BigInt(l.time + l.site + l.machine + l.business + l.sequence)) - 1n;
    for (const [i, kind] of l ? [] : dates.entries()) {
      const at = this.#places[kind];
      if (at === undefined) continue;
      const coarser = dates[i - 1];
      if (coarser && this.#places[coarser] === undefined) {
        this.#fail(`want the ${coarser}, too: without it, dates read alike`, at);
      }
      this.finest = kind;
      this.max = sizes[kind] - 1n;
    }
    this.#bound(id, before.slice(-1) + after.slice(0, 1));
  }

  /** Lets {id} grow to the highest number, unless what is beside it could be its digit. */
  #bound(id: Part, beside: string): void {
    const at = this.#places.number!;
    const most = write({ ...id, width: 1 }, this.max).length;
    id.grows = !this.mask && ![...beside].some((c) => value(id, c, true) >= 0);
    if (id.width > most) this.#fail(`want a width of at most ${most}`, at);
    if (!id.grows) {
      if (id.width === 0) this.#fail(`ambiguous without a width: ${ambiguous}`, at);
      if (this.layout && id.width < most) {
        this.#fail(`ambiguous: ${ambiguous}, and snowflakes need a width of ${most}`, at);
      }
      const bound = highest(id.set, id.width);
      if (bound < this.max) this.max = bound;
    }
    id.width = Math.max(1, id.width);
    id.max = this.max;
  }
}
