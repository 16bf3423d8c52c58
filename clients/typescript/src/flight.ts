import type { Msg, MsgHdrs } from "@nats-io/nats-core";
import { NatsidError, NotServedError, refusalIn, ThrottledError, UnavailableError } from "./errors.js";
import { parseRuns, type Runs } from "./runs.js";
import { now, type Target } from "./target.js";
import { after, type Timer } from "./timer.js";

/** Bounds the wait before a further copy, unless answers take longer. */
const hedgeAgain = 250;
/** The largest request of which a copy is sent while no answer has come. */
const hedgedMost = 10_000;
/** When the answer to a larger request counts as lost: workers refuse by 1.5 s. */
const lostAfter = 2000;
// The pauses between refused copies double from the first to the longest; the first copy is sent at once.
const pauseFirst = 20;
const pauseLongest = 500;
/** The pause before the next attempt to send a copy that may not be sent now. */
const pauseBusy = 50;
/** How late a timer may be, unless the event loop stood still: then it says nothing about natsid. */
const lateMost = 20;

/** The outcome of a flight: IDs, or an error; neither if no caller waited any longer. */
export interface Answer {
  runs?: Runs;
  error?: NatsidError;
}

/** One copy of a request, under way. */
interface Trip {
  token: string;
  sent: number;
  /** How often the connection had reconnected by then. */
  reconnects: number;
  /** The copy counts against the bound of copies. */
  spent: boolean;
}

/** What a flight reports to. */
export interface Launcher {
  /** Reports whether a caller still waits. */
  isWanted(): boolean;
  /** Takes the outcome. It is not called before launch has returned. */
  land(answer: Answer, flight: Flight): void;
}

/**
 * One request for IDs, with its copies, which are sent after silence or a refusal. The first good answer counts. IDs of
 * other answers are never used.
 */
export class Flight {
  readonly n: number;
  readonly #target: Target;
  readonly #header: MsgHdrs | undefined;
  readonly #launcher: Launcher;
  #open: Trip[] = [];
  #copies = 0;
  #began = 0;
  #pause = 0;
  #timer: Timer | undefined;
  #ended = false;

  constructor(target: Target, n: number, header: MsgHdrs | undefined, launcher: Launcher) {
    this.#target = target;
    this.n = n;
    this.#header = header;
    this.#launcher = launcher;
  }

  launch(): void {
    this.#began = now();
    this.#target.earn();
    this.#target.counts.requests++;
    const held = this.#target.held();
    if (held > 0) this.#after(this.#sendNow, Math.min(held, pauseLongest));
    else this.#sendNow();
  }

  /** Sets the timer. If the process was busy and the timer is late, a reply that has come is read first. */
  #after(step: () => void, ms: number): void {
    const due = now() + ms;
    clearTimeout(this.#timer);
    this.#timer = after(ms, () => {
      if (now() - due < lateMost) this.#tick(step);
      else this.#timer = after(1, () => this.#tick(step));
    });
  }

  #tick(step: () => void): void {
    if (this.#ended) return;
    const error = this.#target.settings.inbox.check();
    if (error) this.#end({ error });
    else if (this.#launcher.isWanted()) step.call(this);
    else this.#end({});
  }

  /** Sends a copy, after a pause if it is not the first. */
  #sendNow(): void {
    const held = this.#target.held();
    if (held > 0) {
      this.#after(this.#sendNow, Math.min(held, pauseLongest)); // the request may be unwanted by then
    } else if (!this.#isConnected() || (this.#copies > 0 && !this.#target.spend())) {
      this.#after(this.#sendNow, pauseBusy);
    } else {
      if (this.#copies > 0) this.#target.counts.retries++;
      else this.#target.trouble = undefined;
      if (this.#send(this.#copies > 0)) this.#after(this.#askAgain, this.#silence());
    }
  }

  /** Sends a copy since no answer came. */
  #askAgain(): void {
    if (!this.#isConnected() || this.#target.held() > 0) {
      this.#after(this.#askAgain, pauseBusy);
      return;
    }
    this.#dropLost();
    this.#target.trouble = undefined;
    const isOpen = this.#open.length > 0;
    const mayBeCopied = this.n <= hedgedMost || now() - this.#began >= lostAfter;
    if (isOpen && !(mayBeCopied && this.#target.spend())) {
      this.#after(this.#askAgain, pauseBusy);
      return;
    }
    this.#target.counts.hedges++;
    if (this.#send(isOpen)) this.#after(this.#askAgain, this.#silence());
  }

  /** Reports whether the connection is up; one that is closed is not waited for. */
  #isConnected(): boolean {
    const { inbox } = this.#target.settings;
    return inbox.link.connected || inbox.check() !== undefined;
  }

  /** Drops copies under way on a connection that was lost. */
  #dropLost(): void {
    const { inbox } = this.#target.settings;
    for (const trip of this.#open.filter(({ reconnects }) => reconnects !== inbox.link.reconnects)) {
      this.#drop(trip);
      if (trip.spent) this.#target.refund();
    }
  }

  #drop(trip: Trip): void {
    this.#open = this.#open.filter((t) => t !== trip);
    this.#target.settings.inbox.forget(trip.token);
  }

  /** Sends a copy, and reports whether it is under way. */
  #send(spent: boolean): boolean {
    const { nc, inbox } = this.#target.settings;
    if (inbox.check()) {
      this.#after(this.#sendNow, 0); // the timer ends the flight: its launcher may not be ready for that
      return false;
    }
    this.#copies++;
    let trip: Trip | undefined;
    try {
      const token = inbox.expect(this);
      trip = { token, sent: now(), reconnects: inbox.link.reconnects, spent };
      this.#open.push(trip);
      const reply = inbox.replyTo(token);
      const options = this.#header ? { reply, headers: this.#header } : { reply };
      nc.publish(this.#target.subject, this.n === 1 ? "" : String(this.n), options); // "" requests one
      return true;
    } catch (cause) {
      if (trip) this.#drop(trip);
      this.#retry(new NatsidError(`natsid: request on ${this.#target.subject}: ${cause}`, { cause }), pauseBusy);
      return false;
    }
  }

  /**
   * Returns how long to wait for an answer before a copy is sent: twice as long for each copy, so that a service that
   * is out of reach for seconds does not use up the copies that calls need when it is back.
   */
  #silence(): number {
    const usual = this.#target.patience();
    return Math.max(usual, Math.min(usual * 2 ** Math.min(this.#copies - 1, 2), hedgeAgain));
  }

  /** Processes the reply to a copy. */
  receive(token: string, msg: Msg | undefined, error?: NatsidError): void {
    const trip = this.#open.find((t) => t.token === token);
    if (this.#ended || !trip) return;
    this.#open = this.#open.filter((t) => t !== trip);
    if (!msg) {
      this.#end({ error: error! });
      return;
    }
    const refusal = refusalIn(msg, this.#target.subject);
    if (trip.spent && refusal instanceof NotServedError) this.#target.refund();
    if (refusal) this.#refused(refusal);
    else this.#end(this.#read(msg, trip));
  }

  #read(msg: Msg, { sent }: Trip): Answer {
    try {
      const runs = parseRuns(msg.data, this.n);
      this.#target.learn(now() - sent);
      this.#target.trouble = undefined;
      return { runs };
    } catch (fault) {
      return { error: this.#target.settings.notNatsid(this.#target.subject, fault as Error) };
    }
  }

  /** Decides the next step after a refusal. */
  #refused(error: NatsidError): void {
    const isStopped = error instanceof UnavailableError && error.refusal?.retryAfter;
    const isFinal = isStopped || (error instanceof NotServedError && this.#target.settings.failFast);
    if (isFinal && this.#open.length === 0) {
      this.#end({ error });
    } else if (error instanceof NotServedError || error instanceof UnavailableError) {
      this.#retry(error, 0);
    } else if (error instanceof ThrottledError) {
      this.#target.holdFor(error.refusal?.retryAfter ?? 0);
      this.#retry(error, pauseFirst);
    } else {
      this.#end({ error });
    }
  }

  /** Schedules a copy after a refusal: at once the first time, and not before `least` ms. */
  #retry(why: NatsidError, least: number): void {
    this.#target.trouble = why;
    if (this.#open.length > 0) return; // another copy may be answered, or retried
    const pause = this.#pause && (this.#pause * (1 + Math.random())) / 2; // callers must not come back together
    this.#pause = Math.min(Math.max(2 * this.#pause, pauseFirst), pauseLongest);
    const wait = Math.max(pause, least);
    if (wait > 0) this.#after(this.#sendNow, wait);
    else this.#tick(this.#sendNow);
  }

  #end(answer: Answer): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    for (const { token } of this.#open) this.#target.settings.inbox.forget(token);
    if (answer.runs) this.#target.counts.ids += this.n;
    else this.#target.counts.failures++;
    this.#launcher.land(answer, this);
  }
}
