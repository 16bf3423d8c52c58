import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { inspect } from "node:util";
import { ErrBadRequest, is, NatsidError } from "natsid";
import { ErrNoKey, ErrRange, parseFormat, ReadError } from "natsid/format";
import { readKeyFile } from "natsid/mask";

interface Case {
  name: string;
  format: string;
  layout?: string;
  lenient?: boolean;
  keys?: string[];
  do: "parse" | "write" | "read";
  id?: string;
  text?: string;
  period?: string;
  max?: string;
  error?: string;
  at?: number;
  reason?: string;
}

const file = new URL("../../../conformance/vectors/formats.json", import.meta.url);
const cases: Case[] = JSON.parse(readFileSync(file, "utf8")).cases;

/** Writes a file, and returns its path. */
function written(text: string, mode = 0o600): string {
  const path = join(mkdtempSync(join(tmpdir(), "natsid-key-")), "k1.key");
  writeFileSync(path, text, { mode });
  after(() => rmSync(dirname(path), { recursive: true }));
  return path;
}

const key = (text: string) => readKeyFile(written(text)).key;
const k1 = "natsid-mask-key-1 k1 dd630a267d515202 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const secret = /[0-9a-f]{17}/;

/** Returns what a vector asks of a format. */
function played({ format, layout, lenient = false, keys: texts = [], ...c }: Case): Partial<Case> {
  const keys = texts.map(key);
  const f = parseFormat(format, layout === undefined ? { lenient, keys } : { layout, lenient, keys });
  if (c.do === "parse") return { period: f.period, max: `${f.max}` };
  if (c.do === "read") return { id: `${f.read(c.text ?? "")}` };
  const text = f.format(BigInt(c.id!));
  assert.equal(f.read(text), BigInt(c.id!), c.name);
  return { text };
}

test("formats of the vectors are parsed, written and read as Go does", () => {
  assert.ok(cases.length > 70);
  for (const c of cases) {
    if (c.error === undefined && c.reason === undefined) {
      const { period = "", max, id, text } = c;
      const want = { parse: { period, max }, write: { text }, read: { id } }[c.do];
      assert.deepEqual(played(c), want, c.name);
      continue;
    }
    assert.throws(() => played(c), (error) => {
      const kind = { parse: ErrBadRequest, write: ErrRange, read: ReadError }[c.do];
      assert.ok(is(error, c.error?.includes("there is no key") ? ErrNoKey : kind), `${c.name}: ${error}`);
      assert.ok(error instanceof NatsidError);
      if (error instanceof ReadError) assert.deepEqual([error.at, error.reason], [c.at, c.reason], c.name);
      else assert.equal(error.message, c.error, c.name);
      return true;
    }, c.name);
  }
});

test("each ID has one text, and is read back from it", () => {
  const formats = [
    parseFormat("SO-{date:yyyyMMdd}-{id:6}-{check}"),
    parseFormat("{date:yyMM}.{id::36}"),
    parseFormat("{id:4:crockford}{check}"),
    parseFormat("{date:yyyy-MM-dd HH:mm:ss.SSS} {id::62}", { layout: "leaf" }),
    parseFormat("{business}{id:18}", { layout: "article" }),
  ];
  let written = 0;
  for (let i = 0n; i < 2000n; i++) {
    for (const f of formats) {
      const day = 20260101n + (i % 12n) * 100n + (i % 28n);
      const n = (i * 7919n) % (f.max + 1n);
      const id = { daily: day * 10n ** 8n + n, monthly: (day / 100n) * 10n ** 10n + n, yearly: 0n, "": i ** 5n }[f.period];
      if (id > f.max && f.period === "") continue;
      const text = f.format(id);
      assert.equal(f.read(text), id, `${f}: ${text}`);
      assert.equal(f.format(`${id}`), text);
      for (const wrong of [`${text} `, ` ${text}`]) assert.throws(() => f.read(wrong), ReadError, `${f}: ${wrong}`);
      written++;
    }
  }
  assert.ok(written > 7000, `${written}`);
});

test("the check digit finds each wrong digit and each swap of neighbours", () => {
  const formats = [["{id:6}{check}", "0123456789"], ["{id:6:crockford}{check}", "0123456789ABCDEFGHJKMNPQRSTVWXYZ"]];
  for (const [format, digits] of formats) {
    const f = parseFormat(format!);
    for (let n = 0n; n < 1_000_000n; n += 79_193n) {
      const text = f.format(n);
      for (let i = 0; i < text.length; i++) {
        for (const c of digits!) {
          const other = text.slice(0, i) + c + text.slice(i + 1);
          if (other !== text) assert.throws(() => f.read(other), ReadError, `${other} for ${text}`);
        }
        const swapped = text.slice(0, i) + text.slice(i + 1, i + 2) + text[i] + text.slice(i + 2);
        if (swapped !== text) assert.throws(() => f.read(swapped), ReadError, `${swapped} for ${text}`);
      }
    }
  }
});

test("a time beyond what a Date holds is written", () => {
  const layout = { time: 50, machine: 1, sequence: 1, epoch: 0 };
  const f = parseFormat("{date:HH:mm} {id}", { layout });
  const id = (2n ** 50n - 1n) << 2n; // 12:53:04 on a day of the year 37648
  assert.equal(f.read(f.format(id)), id);
  assert.throws(() => parseFormat("{date:yyyy} {id}", { layout }).format(id), /the year is 37648, want 0 to 9999/);
  assert.throws(() => parseFormat("{id}", { layout: "leaves" }), ErrBadRequest);
});

test("a mask is a bijection that its key undoes", () => {
  const keys = [key(k1)];
  for (const format of ["{mask:k1:9}", "{date:yyyyMM}-{mask:k1:7:20}", "{mask:k1:7:8}", "{mask:k1:13:3}"]) {
    const f = parseFormat(format, { keys });
    const texts = new Set<string>();
    for (let i = 0n; i < 3000n; i++) {
      const n = i < 1500n ? i : f.max - i;
      const id = f.period ? (202601n + (i % 12n)) * 10n ** 10n + n : n;
      const text = f.format(id);
      for (const g of [f, parseFormat(format, { keys })]) assert.equal(g.read(text), id, `${f}: ${text}`);
      texts.add(text);
    }
    assert.equal(texts.size, 3000);
  }
});

test("a key is read from its file, and never shown", () => {
  for (const mode of [0o600, 0o644]) {
    const path = written(k1, mode);
    const { key, warning } = readKeyFile(path);
    const loose = mode === 0o600 ? "" : `others can read or write the key file ${path} (mode 0644): chmod 600 it`;
    assert.deepEqual([key.name, key.fingerprint, warning], ["k1", "dd630a267d515202", loose]);
    for (const shown of [`${key}`, JSON.stringify({ key }), inspect({ key }, { depth: 9, showHidden: true })]) {
      assert.doesNotMatch(shown, /000102|00 01 02|0, ?1, ?2/);
    }
  }
});

test("a wrong key file is refused with the reason and without its content", () => {
  const wrongs: Record<string, [string, RegExp]> = {
    empty: ["", /not one line/],
    "another version": [k1.replace("key-1", "key-2"), /not one line/],
    "two keys": [k1 + k1, /not one line/],
    "a name in upper case": [k1.replace("k1", "K1"), /the name is not/],
    "a secret that is cut": [k1.slice(0, -3), /not 64/],
    "a letter in the secret": [k1.replace("0001", "000x"), /not 64/],
    "a changed secret": [k1.replace("0001", "0002"), /fingerprint/],
    "a changed fingerprint": [k1.replace("dd63", "dd64"), /fingerprint/],
  };
  for (const [name, [text, reason]] of Object.entries(wrongs)) {
    const path = written(text);
    assert.throws(() => readKeyFile(path), (error: Error) => {
      assert.ok(is(error, ErrBadRequest) && error.message.includes(path), name);
      assert.match(error.message, reason, name);
      assert.doesNotMatch(error.message, secret, name);
      return true;
    });
  }
  assert.throws(() => readKeyFile("/none/k1.key"), { code: "ENOENT" });
});

test("no format takes long to be refused", () => {
  const began = performance.now();
  for (const text of [`{date:${"y".repeat(121)}`, `{date:${"yy".repeat(60)}}`, "{".repeat(128)]) {
    assert.throws(() => parseFormat(text), ErrBadRequest);
  }
  assert.ok(performance.now() - began < 1000);
});
