import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { inspect } from "node:util";
import { parseFormat, ReadError } from "natsid/format";
import { Key } from "natsid/mask";

interface Case {
  name: string;
  format: string;
  layout?: string;
  lenient?: boolean;
  tag?: string;
  keys?: Record<string, string>;
  do: "parse" | "write" | "read";
  id?: string;
  text?: string;
  max?: string;
  error?: string;
  at?: number;
  reason?: string;
}

const file = new URL("../../../proof/conformance/vectors/formats.json", import.meta.url);
const cases: Case[] = JSON.parse(readFileSync(file, "utf8")).cases;

const keysOf = (texts: Record<string, string>) =>
  Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, new Key(Buffer.from(text, "hex"))]));

/** Returns what a vector asks of a format. */
function played({ format, layout, lenient = false, tag = "", keys: texts = {}, ...c }: Case): Partial<Case> {
  const keys = keysOf(texts);
  const f = parseFormat(format, layout === undefined ? { lenient, tag, keys } : { layout, lenient, tag, keys });
  if (c.do === "parse") return { max: `${f.max}` };
  if (c.do === "read") return { id: `${f.read(c.text ?? "")}` };
  const text = f.format(BigInt(c.id!));
  assert.equal(f.read(text), BigInt(c.id!), c.name);
  return { text };
}

test("formats of the vectors are parsed, written and read as Go does", () => {
  assert.ok(cases.length > 70);
  for (const c of cases) {
    if (c.error === undefined && c.reason === undefined) {
      const { max, id, text } = c;
      const want = { parse: { max }, write: { text }, read: { id } }[c.do];
      assert.deepEqual(played(c), want, c.name);
      continue;
    }
    assert.throws(() => played(c), (error) => {
      const kind = { parse: RangeError, write: RangeError, read: ReadError }[c.do];
      assert.ok(error instanceof kind, `${c.name}: ${error}`);
      if (error instanceof ReadError) assert.deepEqual([error.at, error.reason], [c.at, c.reason], c.name);
      else assert.equal(error.message, c.error, c.name);
      return true;
    }, c.name);
  }
});

test("the vectors find a calendar with a leap day in each fourth year", async (t) => {
  const dist = new URL("../dist/", import.meta.url);
  const source = readFileSync(new URL("format.js", dist), "utf8");
  const mutant = source.replace("% 400)", "% 4)").replaceAll('from "./', 'from "../');
  assert.ok(mutant.includes("% 4)"), "the mutant's place is gone");
  const folder = new URL("mutant/", dist); // the package has only files of dist itself
  mkdirSync(folder, { recursive: true });
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(new URL("format.js", folder), mutant);
  const mutated = (await import(new URL("format.js", folder).href)) as typeof import("natsid/format");
  const c = cases.find(({ id }) => id === "2100022900000001")!;
  assert.throws(() => parseFormat(c.format).format(c.id!), RangeError);
  assert.equal(mutated.parseFormat(c.format).format(c.id!), "21000229-1");
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
      const dated: Record<string, bigint> = { "99999999": day * 10n ** 8n + n, "9999999999": (day / 100n) * 10n ** 10n + n };
      const id = dated[`${f.max}`] ?? i ** 5n;
      if (!dated[`${f.max}`] && id > f.max) continue;
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
  assert.throws(() => parseFormat("{id}", { layout: "leaves" }), RangeError);
});

test("what prints a key does not show it", () => {
  const key = new Key(Buffer.alloc(32, 7));
  for (const shown of [`${key}`, JSON.stringify({ key }), inspect({ key }, { depth: 9, showHidden: true })]) {
    assert.doesNotMatch(shown, /0707|07 07|7, ?7/);
  }
});

test("no format takes long to be refused", () => {
  const began = performance.now();
  for (const text of [`{date:${"y".repeat(121)}`, `{date:${"yy".repeat(60)}}`, "{".repeat(128)]) {
    assert.throws(() => parseFormat(text), RangeError);
  }
  assert.ok(performance.now() - began < 1000);
});
