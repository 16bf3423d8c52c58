// Go's forms of texts and durations, which the texts of refusals have in every language.

const utf8 = new TextEncoder();
const short: Record<number, string> = {
  7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\",
};

/** Returns the bytes of a text. */
export function bytes(text: string): Uint8Array {
  return utf8.encode(text);
}

/** Quotes at most `limit` bytes of a caller's text, in ASCII. */
export function excerpt(text: Uint8Array, limit: number): string {
  if (text.length <= limit) return quote(text);
  return `${quote(text.subarray(0, limit))} and ${text.length - limit} bytes more`;
}

/** Quotes bytes as Go's strconv.QuoteToASCII does. */
function quote(text: Uint8Array): string {
  let out = "";
  for (let i = 0; i < text.length; ) {
    const n = sequence(text, i);
    out += n === 0 ? hex("x", text[i]!, 2) : escape(decoder.decode(text.subarray(i, i + n)).codePointAt(0)!);
    i += n || 1;
  }
  return `"${out}"`;
}

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Returns the length of the UTF-8 sequence that begins at a byte; 0 if none does. */
function sequence(text: Uint8Array, at: number): number {
  for (let n = 1; n <= 4 && at + n <= text.length; n++) {
    try {
      decoder.decode(text.subarray(at, at + n));
      return n;
    } catch {
      // not a whole sequence
    }
  }
  return 0;
}

function escape(point: number): string {
  if (short[point]) return short[point];
  if (point >= 32 && point < 127) return String.fromCharCode(point);
  if (point < 128) return hex("x", point, 2);
  return point < 0x10000 ? hex("u", point, 4) : hex("U", point, 8);
}

function hex(letter: string, n: number, width: number): string {
  return `\\${letter}${n.toString(16).padStart(width, "0")}`;
}

/** Writes milliseconds as Go prints a duration: 1500 is 1.5s. */
export function duration(ms: number): string {
  const ns = Math.round(Math.abs(ms) * 1e6);
  const sign = ms < 0 ? "-" : "";
  if (ns === 0) return "0s";
  if (ns < 1e3) return `${sign}${ns}ns`;
  if (ns < 1e6) return `${sign}${ns / 1e3}µs`;
  if (ns < 1e9) return `${sign}${ns / 1e6}ms`;
  const s = ns / 1e9;
  const [h, m] = [Math.floor(s / 3600), Math.floor(s / 60) % 60];
  const rest = Number((s - h * 3600 - m * 60).toFixed(9));
  return `${sign}${h ? `${h}h` : ""}${h || m ? `${m}m` : ""}${rest}s`;
}

const units: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, μs: 1e-3, ms: 1, s: 1e3, m: 6e4, h: 36e5 };
const part = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g;

/** Reads a duration as Go writes it, in ms; NaN if it is none. */
export function parseDuration(text: string): number {
  const [, sign, body] = /^([+-]?)(.*)$/s.exec(text)!;
  if (body === "0") return 0;
  let ms = 0;
  const rest = body!.replace(part, (_, n: string, unit: string) => {
    ms += Number(n) * units[unit]!;
    return "";
  });
  return rest !== "" || body === "" ? NaN : sign === "-" ? -ms : ms;
}
