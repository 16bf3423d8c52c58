import { parseID } from "./id.js";
import { bytes, duration, excerpt, parseDuration } from "./text.js";

/**
 * The split of the 63 bits of a snowflake: widths in bits, from the high end of the ID down. `machine` is the width of
 * the machine number within its site.
 */
export interface Layout {
  time: number;
  site?: number;
  machine: number;
  business?: number;
  sequence: number;
  /** The first millisecond of tick 0, in Unix ms. The default is Leaf's, 2010-11-04 01:42:54.657 UTC. */
  epoch?: number;
  /** The length of a tick in ms. The default is 1. */
  unit?: number;
}

/** The fields of a snowflake. */
export interface Parts {
  /** The first instant of the tick; invalid beyond the year 275760, which a Date cannot hold. */
  time: Date;
  /** The same in Unix ms. */
  timeMs: bigint;
  /** Ticks since the epoch. */
  tick: bigint;
  /** The worker number: site and machine together. */
  worker: number;
  site: number;
  /** The machine within its site. */
  machine: number;
  business: bigint;
  /** The number of the ID within the tick, from 0. */
  sequence: bigint;
}

const leafEpoch = 1288834974657;
const presets: Record<string, Layout> = {
  leaf: { time: 41, machine: 10, sequence: 12 },
  js53: { time: 41, machine: 6, sequence: 6 },
  article: { time: 39, site: 2, machine: 7, business: 4, sequence: 7, epoch: 1537545600000 },
};

/**
 * Splits a snowflake. The layout is that of the workers, `natsid --layout`: leaf, js53, article, widths in bits such as
 * "41+10+12" or "39+2+7+4+7@10ms", or a {@link Layout}, for another epoch. Throws a RangeError if the
 * layout is malformed, or the ID is not one of the layout.
 */
export function decode(id: bigint | string, layout: string | Layout = "leaf"): Parts {
  if (typeof id === "string") id = parseID(id);
  const l = layoutOf(layout);
  const low = BigInt(l.site + l.machine + l.business + l.sequence);
  const tick = id >> low;
  if (id < 0n || tick >= 1n << BigInt(l.time)) fail(`${id} is not an ID of layout ${text(l)}`);
  const worker = Number((id >> BigInt(l.business + l.sequence)) & mask(l.site + l.machine));
  const timeMs = BigInt(l.epoch) + tick * BigInt(l.unit);
  return {
    time: new Date(Number(timeMs)),
    timeMs,
    tick,
    worker,
    site: Math.floor(worker / 2 ** l.machine),
    machine: worker % 2 ** l.machine,
    business: (id >> BigInt(l.sequence)) & mask(l.business),
    sequence: id & mask(l.sequence),
  };
}

/** @internal Returns a layout with its defaults. Throws a RangeError. */
export function layoutOf(layout: string | Layout): Required<Layout> {
  return valid(typeof layout === "string" ? parseLayout(layout) : layout);
}

function fail(fault: string): never {
  throw new RangeError(`snowflake: ${fault}`);
}

function mask(bits: number): bigint {
  return (1n << BigInt(bits)) - 1n;
}

function parseLayout(spec: string): Layout {
  const preset = Object.hasOwn(presets, spec) && presets[spec];
  if (preset) return preset;
  const [, split, unit] = /^([^@]*)(?:@(.*))?$/s.exec(spec)!;
  const widths = split!.split("+").map((w) => (/^\d+$/.test(w) ? Number(w) : NaN));
  const ms = unit === undefined ? 1 : parseDuration(unit);
  if (![3, 5].includes(widths.length) || !widths.every((w) => w <= 255) || !Number.isInteger(ms)) {
    fail(
      `layout ${excerpt(bytes(spec), Infinity)}: want leaf, js53, article, or widths in bits as ` +
        "time+machine+sequence or time+site+machine+business+sequence, such as 41+10+12 or 39+2+7+4+7, " +
        "followed by @10ms for ticks of 10 ms",
    );
  }
  const [time, site, machine, business, sequence] = widths.length === 5 ? widths : widths.flatMap((w) => [w, 0]);
  return { time: time!, site: site!, machine: machine!, business: business!, sequence: sequence!, unit: ms };
}

/** Returns the layout with its defaults. Throws an error that names each fault of it. */
function valid(layout: Layout): Required<Layout> {
  const l = { site: 0, business: 0, epoch: leafEpoch, unit: 1, ...layout };
  const bits = l.time + l.site + l.machine + l.business + l.sequence;
  const faults = [
    (Math.min(l.time, l.machine, l.sequence) < 1 || Math.min(l.site, l.business) < 0) &&
      "time, machine and sequence need at least one bit each",
    bits > 63 && `${bits} bits, want at most 63`,
    l.site + l.machine > 31 && `${l.site + l.machine} bits for site and machine together, want at most 31`,
    !(l.unit >= 1 && l.unit <= 60_000) && `a tick of ${l.unit} ms, want 1 to 60000`,
    !(l.epoch >= 0 && l.epoch <= 32503680000000) &&
      `epoch ${l.epoch}, want Unix milliseconds from 0 to 32503680000000 (year 3000)`,
    l.unit >= 1 && l.time >= 1 && l.time <= 62 && 1n << BigInt(l.time) > (1n << 62n) / BigInt(l.unit) &&
      `${l.time} bits of ${l.unit} ms outlast 146 million years: take fewer time bits or shorter ticks`,
  ].filter((fault) => fault !== false);
  if (faults.length > 0) fail(`layout ${text(l)}: ${faults.join("\n")}`);
  return l;
}

/** Returns the layout without its epoch, as Go prints it. */
function text(l: Required<Layout>): string {
  const widths = l.site || l.business
    ? [l.time, l.site, l.machine, l.business, l.sequence]
    : [l.time, l.machine, l.sequence];
  return widths.join("+") + (l.unit === 1 ? "" : `@${duration(l.unit)}`);
}
