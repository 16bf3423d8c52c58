/** A timer of the runtime. */
export type Timer = ReturnType<typeof setTimeout>;

/** The longest time that a timer keeps, in ms. */
export const longest = 2 ** 31 - 1;

/** Calls f after so many ms, and does not keep the process alive for that: the connection does, while it is open. */
export function after(ms: number, f: () => void): Timer {
  const timer: unknown = setTimeout(f, Math.min(ms, longest));
  if (typeof timer === "object") (timer as { unref?(): void }).unref?.();
  else (globalThis as { Deno?: { unrefTimer?(id: unknown): void } }).Deno?.unrefTimer?.(timer);
  return timer as Timer;
}
