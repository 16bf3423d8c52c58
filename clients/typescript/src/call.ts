import { checkTimeout } from "./check.js";
import { now, type Target } from "./target.js";
import { after, type Timer } from "./timer.js";

/** How a call may end early. */
export interface CallOptions {
  /** Ends the call with {@link AbortError}, or with {@link TimeoutError} if it is of `AbortSignal.timeout`. */
  signal?: AbortSignal | undefined;
  /** Ends the call with {@link TimeoutError} after so many ms. The default is that of the client. */
  timeout?: number | undefined;
}

/**
 * What gives a call its IDs.
 *
 * @internal
 */
export interface Owner {
  /** Is called when a call ends without a result. */
  gaveUp(): void;
}

/**
 * A call that waits for its result.
 *
 * @internal
 */
export class Call<T> {
  readonly promise: Promise<T>;
  readonly began: number = now();
  ended = false;
  readonly #target: Target;
  readonly #owner: Owner;
  #resolve!: (value: T) => void;
  #reject!: (error: unknown) => void;
  #signal: AbortSignal | undefined;
  #timer: Timer | undefined;
  #abort: (() => void) | undefined;

  constructor(target: Target, owner: Owner, options: CallOptions | undefined) {
    this.#target = target;
    this.#owner = owner;
    this.promise = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (options) this.#watch(options);
  }

  #watch({ signal, timeout }: CallOptions): void {
    if (timeout !== undefined) {
      checkTimeout(timeout);
      this.#timer = after(timeout, () => this.giveUp());
    }
    if (!signal) return;
    this.#signal = signal;
    this.#abort = () => this.giveUp();
    signal.addEventListener("abort", this.#abort);
  }

  /** Reports whether the call waits without a timer of its own: then {@link Deadline} ends it. */
  get isPatient(): boolean {
    return !this.ended && this.#timer === undefined;
  }

  resolve(value: T): void {
    this.#end();
    this.#resolve(value);
  }

  reject(error: unknown): void {
    this.#end();
    this.#reject(error);
  }

  /** Ends the call without a result. */
  giveUp(): void {
    if (this.ended) return;
    this.reject(this.#target.gaveUp(this.#signal));
    this.#owner.gaveUp();
  }

  #end(): void {
    this.ended = true;
    if (this.#timer) clearTimeout(this.#timer);
    if (this.#abort) this.#signal!.removeEventListener("abort", this.#abort);
  }
}

type Waiting = Pick<Call<never>, "isPatient" | "began" | "giveUp">;

/**
 * Ends calls without a timeout of their own: one timer for all calls of a handle, which is set while calls wait.
 *
 * @internal
 */
export class Deadline {
  readonly #timeout: number;
  readonly #calls: () => Iterable<Waiting>;
  #timer: Timer | undefined;

  constructor(timeout: number, calls: () => Iterable<Waiting>) {
    this.#timeout = timeout;
    this.#calls = calls;
  }

  /** Is called when a call begins. */
  watch(): void {
    this.#timer ??= after(this.#timeout, () => this.#look());
  }

  #look(): void {
    const due = now() - this.#timeout;
    let next = Infinity;
    for (const call of this.#calls()) {
      if (!call.isPatient) continue;
      if (call.began <= due) call.giveUp();
      else next = Math.min(next, call.began);
    }
    this.#timer = next === Infinity ? undefined : after(next - due, () => this.#look());
  }
}
