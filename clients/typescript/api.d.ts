// index
/**
 * Draws IDs from natsid over NATS. The laws that the calls keep are those of natsid's clients in every language:
 * docs/client-laws.md of natsid.
 *
 * @module
 */
import type { NatsConnection } from "@nats-io/nats-core";
import type { CallOptions } from "./call.js";
import { Handle, type SegmentOptions } from "./handle.js";
import { type TagSettings } from "./tags.js";
export type { CallOptions } from "./call.js";
export { AbortError, BadRequestError, BusyError, ClosedError, NatsidError, NotNatsidError, NotServedError, type Refusal, TagExistsError, ThrottledError, TimeoutError, UnavailableError, UnknownTagError, UsedUpError, } from "./errors.js";
export type { Handle, SegmentOptions, Stats } from "./handle.js";
export { parseID } from "./id.js";
export { decode, type Layout, type Parts } from "./layout.js";
export type { Run, Runs } from "./runs.js";
export type { TagSettings } from "./tags.js";
/** How a client differs from the default. */
export interface Options {
    /** The namespace of the workers. The default is "id". */
    namespace?: string | undefined;
    /** Bounds calls that have no timeout of their own, in ms. The default is 5000. */
    timeout?: number | undefined;
    /**
     * Has calls fail with {@link NotServedError} at once where no worker serves them, instead of asking again until their
     * time is up. That may be so for a moment, as while the only worker restarts.
     */
    failFast?: boolean | undefined;
    /** Receives messages for an operator: the first {@link NotNatsidError}. The default is console.warn. */
    log?: ((message: string) => void) | undefined;
}
/** The settings of a handle of snowflakes. What is not there, or 0, is the default. */
export interface SnowflakeOptions extends Pick<SegmentOptions, "prefetch" | "maxAge"> {
    /** The business, for a layout that has a field for it. The default is 0. */
    business?: number | bigint | undefined;
}
/** Requests IDs from the workers of one namespace. */
export declare class Client {
    #private;
    /**
     * Returns the handle of a tag: the same for all callers with the same options, who share its requests. Throws a
     * RangeError if an argument is malformed.
     */
    segment(tag: string, options?: SegmentOptions): Handle;
    /** Returns the handle of snowflakes of a business, as {@link segment} does that of a tag. */
    snowflake({ business, ...options }?: SnowflakeOptions): Handle;
    /**
     * Ends the client's subscription to replies. Calls, under way or later, reject with {@link ClosedError}, but prefetched
     * IDs are given out until they are used up or too old. The connection stays open. A caller that closes the connection
     * need not close the client.
     */
    close(): void;
    /**
     * Creates a tag, also one that was deleted, unless there is one with the same settings: so a service may call it at
     * each start, and again after an error. Rejects with {@link TagExistsError} if a setting differs, and changes nothing.
     */
    ensureTag(tag: string, settings?: TagSettings, options?: CallOptions): Promise<void>;
}
/**
 * Returns a client on a connection, which the caller closes. It sends nothing before the first call.
 *
 * A connection should notice within two seconds that its server hangs, and never give up: connect with `pingInterval:
 * 1000, maxPingOut: 1, maxReconnectAttempts: -1, reconnectTimeWait: 100`.
 */
export declare function natsid(nc: NatsConnection, options?: Options): Client;

// call
/** How a call may end early. */
export interface CallOptions {
    /** Ends the call with {@link AbortError}, or with {@link TimeoutError} if it is of `AbortSignal.timeout`. */
    signal?: AbortSignal | undefined;
    /** Ends the call with {@link TimeoutError} after so many ms. The default is that of the client. */
    timeout?: number | undefined;
}

// errors
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
/**
 * The base of the errors of this package. Malformed arguments are a RangeError or a TypeError, and nothing is sent.
 * An error of another copy of the package is an instance of the class of its name, too.
 */
export declare class NatsidError extends Error {
    /** The refusal, where a worker refused the request. */
    readonly refusal: Refusal | undefined;
    constructor(message: string, options?: ErrorOptions & {
        refusal?: Refusal;
    });
    static [Symbol.hasInstance](error: unknown): boolean;
}
/** No worker serves the subject, as where natsid runs on another NATS or in another namespace. Start it on this one. */
export declare class NotServedError extends NatsidError {
    static readonly kind: string;
}
/**
 * Workers cannot issue now (503), as while JetStream has no leader, or before an operator resumes a registry that is
 * stopped. Ask again later; the log of the workers says why.
 */
export declare class UnavailableError extends NatsidError {
    static readonly kind: string;
}
/** Too many requests (429), as beyond the rate of the tag. Back off. */
export declare class ThrottledError extends NatsidError {
    static readonly kind: string;
}
/** A worker calls the request malformed (400), as a prefetch of a strict tag. Fix it; to ask again cannot help. */
export declare class BadRequestError extends NatsidError {
    static readonly kind: string;
}
/** There is no such tag (404), as where it was deleted, or its name is misspelt. Create it. */
export declare class UnknownTagError extends NatsidError {
    static readonly kind: string;
}
/** There is such a tag already, with other settings (409). Use it, or change it. */
export declare class TagExistsError extends NatsidError {
    static readonly kind: string;
}
/**
 * Fewer numbers than requested are left of the tag, or of its day, month or year (410). `refusal.maxBatch` says how
 * many. Raise the tag's maximum, or wait for the next period.
 */
export declare class UsedUpError extends NatsidError {
    static readonly kind: string;
}
/**
 * The reply is not one of natsid's, but for example of another program or a JetStream stream on the same subject.
 * Stop that from answering.
 */
export declare class NotNatsidError extends NatsidError {
    static readonly kind: string;
}
/**
 * Too many calls of this handle wait already, as while NATS is away. Nothing was sent. Slow down, or find out why natsid
 * does not answer.
 */
export declare class BusyError extends NatsidError {
    static readonly kind: string;
}
/** The client or its connection is closed, as in a handler that outlives its server. */
export declare class ClosedError extends NatsidError {
    static readonly kind: string;
}
/**
 * The time of the call was up, by its timeout or by an `AbortSignal.timeout`. The cause is the reason why there was no
 * ID until then, such as {@link NotServedError}, if there is one.
 */
export declare class TimeoutError extends NatsidError {
    static readonly kind: string;
}
/**
 * The signal of the call was aborted. The cause is the reason why there was no ID until then, if there is one, else
 * the reason of the signal.
 */
export declare class AbortError extends NatsidError {
    static readonly kind: string;
}

// format
import { NatsidError } from "./errors.js";
import { type Layout } from "./layout.js";
import type { Key } from "./mask.js";
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
export declare class ReadError extends NatsidError {
    static readonly kind: string;
    /** The byte of the text, from 0. */
    readonly at: number;
    /** What is wrong there. */
    readonly reason: string;
    constructor(at: number, reason: string);
}
/**
 * Reads a format, such as `SO-{date:yyyyMMdd}-{id:6}-{check}`. Throws a RangeError, which names the place and
 * the reason of a fault. Formats are those of natsid's Go package format, with the same texts and errors: in a radix
 * above 36 the texts of different IDs may differ in case alone, so that a column which ignores case takes them as equal.
 */
export declare function parseFormat(text: string, options?: FormatOptions): Format;
/** Writes IDs as texts, and reads them. */
export declare class Format {
    #private;
    /** The highest number that {id} or {mask} can have, of a daily tag the highest of a day. */
    readonly max: bigint;
    /** Returns the text that was parsed. */
    toString(): string;
    /** Returns the text of an ID. Throws a RangeError, as for an ID above its highest number. */
    format(id: bigint | string): string;
    /** Returns the ID whose text this is. Throws {@link ReadError}. */
    read(text: string): bigint;
}

// handle
import { type CallOptions } from "./call.js";
import { Runs } from "./runs.js";
/** The counts of a handle since it was made. */
export interface Stats {
    /** IDs received, including those of a prefetched range. */
    ids: number;
    /** Requests sent, without copies. */
    requests: number;
    /** Copies sent since no answer came. */
    hedges: number;
    /** Copies sent after a refusal. */
    retries: number;
    /** Requests that ended without IDs. */
    failures: number;
    /** Prefetched IDs that wait for a call. */
    held: number;
    /** Smoothed response time in ms; 0 before the first answer. */
    usual: number;
}
/** The settings of a handle of a tag. What is not there, or 0, is the default. */
export interface SegmentOptions {
    /**
     * How many IDs are held in advance, at most the limit of the workers: see {@link Handle}. The default is none. Workers
     * refuse it for a strict tag, since other callers get higher IDs while IDs are held: calls reject with {@link BadRequestError}.
     */
    prefetch?: number | undefined;
    /** How old an ID that is held may become in ms, from before it was requested: at most an hour. The default is 60,000. */
    maxAge?: number | undefined;
    /** How many calls share a request at most. The default is 10,000. A lower limit of a worker is obeyed. */
    maxBatch?: number | undefined;
}
/**
 * Draws the IDs of one tag, or snowflakes. Keep it and share it: calls that overlap share requests.
 *
 * With `prefetch` it holds a range of IDs. A call that leaves half of it, or finds a quarter of `maxAge` left, requests
 * the next range in the background. IDs older than `maxAge` are discarded: so the time in a snowflake is no older than
 * that, and a raised max_id takes effect after it. Each discarded range is a hole. While natsid is out of reach, calls
 * get held IDs.
 */
export declare class Handle {
    #private;
    /**
     * Returns one ID. Concurrent calls share requests: the ID is from a request that was sent after the call began, unless
     * it was held.
     *
     * The call asks again after refusals that another worker may not repeat, after silence, and after a lost connection,
     * until its time is up. Asking again is safe: no two calls return the same ID, and unused IDs are holes. It rejects
     * with {@link UnknownTagError}, {@link UsedUpError}, {@link BadRequestError}, {@link NotNatsidError},
     * {@link BusyError}, {@link ClosedError}, {@link TimeoutError}, {@link AbortError}, or {@link UnavailableError} while workers wait for an
     * operator.
     */
    next(options?: CallOptions): Promise<bigint>;
    /**
     * Returns one ID that is held; undefined if there is none, and then requests a range in the background, if the handle
     * has `prefetch`. Errors of workers are those of {@link next}.
     */
    takeSync(): bigint | undefined;
    /** Returns one ID as a number. Rejects with a RangeError if it is above 2^53-1, as those of most layouts are. */
    nextNumber(options?: CallOptions): Promise<number>;
    /**
     * Returns n IDs, 1 to 10,000,000: held ones if there are as many, or else others that are requested for this call
     * alone. Where n is above the limit of a request, 100,000 by default, it sends one request after the other; after a
     * failure the IDs of those before are holes.
     */
    nextN(n: number, options?: CallOptions): Promise<Runs>;
    /** Returns the counts of the handle. */
    stats(): Stats;
}

// id
/** Reads an ID from a text, as from JSON: an ID has one spelling. Throws a RangeError. */
export declare function parseID(text: string): bigint;

// layout
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
/**
 * Splits a snowflake. The layout is that of the workers, `natsid --layout`: leaf, js53, article, widths in bits such as
 * "41+10+12" or "39+2+7+4+7@10ms", or a {@link Layout}, for another epoch. Throws a RangeError if the
 * layout is malformed, or the ID is not one of the layout.
 */
export declare function decode(id: bigint | string, layout?: string | Layout): Parts;

// mask
/** A secret of 32 bytes. What prints a key does not show it. */
export declare class Key {
    #private;
    constructor(secret: Uint8Array);
}

// runs
/** Consecutive IDs, from first to last, both included. */
export interface Run {
    readonly first: bigint;
    readonly last: bigint;
}
/** The IDs of one reply, in its order: as disjoint runs, and one after the other by `for (const id of runs)`. */
export declare class Runs implements Iterable<bigint> {
    /** The runs. */
    readonly runs: readonly Run[];
    /** The number of IDs. */
    readonly length: number;
    [Symbol.iterator](): Generator<bigint, void, undefined>;
}

// tags
/** What a tag is like. What is left out agrees with any value of a tag that exists. */
export interface TagSettings {
    /** IDs that a load reserves at least. */
    step?: number;
    /** The first ID; a tag that exists agrees if its next one is not lower. */
    start?: number | bigint;
    description?: string;
    /** The lowest and the highest number, of each period if the tag has one. */
    min?: number | bigint;
    max?: number | bigint;
    /** How many IDs a crash of one worker can waste at most. */
    maxHole?: number | bigint;
    /** When the numbers begin again, and the time zone of that; UTC if it is left out. */
    period?: "daily" | "monthly" | "yearly";
    zone?: string;
    /** The IDs rise over all workers. The order of a tag never changes. */
    strict?: boolean;
}

// target
export {};

// testing
/** What the server is like. */
export interface TestServerOptions {
    /** The layout of snowflakes, as of `natsid --layout`. */
    layout?: string | undefined;
    /** The namespace of the subjects. The default is "id". */
    namespace?: string | undefined;
}
/** A NATS server and a natsid worker, in memory, on free ports of this machine. */
export declare class TestServer implements AsyncDisposable {
    #private;
    /** The URL of NATS. */
    readonly nats: string;
    /** The URL of NATS for browsers. */
    readonly websocket: string;
    /** The URL of health, metrics and the page. */
    readonly http: string;
    readonly namespace: string;
    /** The version of natsid. */
    readonly version: string;
    /** Lets requests for IDs wait for so many ms, or until resume, before the worker gets them. */
    stall(ms?: number): Promise<void>;
    /** Answers requests for IDs with an error code, 400, 404, 429, 500 or 503, for so many ms, or until resume. */
    refuse(code: number, ms?: number): Promise<void>;
    /** Drops the replies to requests that the worker gets within so many ms, or until resume: their IDs are a hole. */
    dropReplies(ms?: number): Promise<void>;
    /** Ends what stall, refuse or dropReplies began. */
    resume(): Promise<void>;
    /** Stops the worker and starts it again. */
    restart(): Promise<void>;
    /** Raises the next ID of each tag by n: by 2n ** 53n it breaks code that stores IDs as numbers. */
    skip(n: number | bigint): Promise<void>;
    /** Plays a fault in the words of `natsid test-server --help`. Rejects with the server's sentence if there is none. */
    order(words: string, ms?: number): Promise<void>;
    /** Ends the server. It ends with this process, too. */
    stop(): Promise<void>;
    [Symbol.asyncDispose](): Promise<void>;
}
/**
 * Starts a server for tests. The program is that of the environment variable NATSID_BIN, or `natsid` on the PATH.
 *
 * The server keeps this process alive until it is stopped, as after all tests.
 */
export declare function start(options?: TestServerOptions): Promise<TestServer>;
