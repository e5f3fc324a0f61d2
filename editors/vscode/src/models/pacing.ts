/**
 * Joins the pieces of an answer so that the editor shows them evenly. Pure: the clock and the timer are given.
 *
 * The chat view flushes 30 ms after the last part it got, and a new part restarts the wait; a model faster than 33
 * tokens a second would show nothing for many tokens. So the first piece goes out at once and the next ones joined,
 * 40 ms apart.
 */

/** Least time between two reports, in milliseconds. */
export const PACE_MS = 40;

/** What a pacer needs of the world. */
export interface Timing {
  /** Milliseconds, never falling. */
  now(): number;
  /** Runs `work` after `ms`; the returned function forgets it. */
  after(ms: number, work: () => void): () => void;
}

/** Pieces of one stream; pieces of different kinds are never joined and keep their order. */
export class Pacer<Kind extends string> {
  private waiting: { kind: Kind; text: string }[] = [];
  private last = Number.NEGATIVE_INFINITY;
  private forget: (() => void) | undefined;
  private readonly report: (kind: Kind, text: string) => void;
  private readonly timing: Timing;
  private readonly pace: number;

  constructor(report: (kind: Kind, text: string) => void, timing: Timing, pace: number = PACE_MS) {
    this.report = report;
    this.timing = timing;
    this.pace = pace;
  }

  /** More text. */
  push(kind: Kind, text: string): void {
    const end = this.waiting.at(-1);
    if (end?.kind === kind) {
      end.text += text;
    } else if (text) {
      this.waiting.push({ kind, text });
    }
    if (this.forget === undefined && this.waiting.length > 0) {
      this.arm();
    }
  }

  /** Report what is left, at the end or before something that must come after it. */
  flush(): void {
    this.forget?.();
    this.forget = undefined;
    const pieces = this.waiting;
    this.waiting = [];
    for (const piece of pieces) {
      this.report(piece.kind, piece.text);
    }
    if (pieces.length > 0) {
      this.last = this.timing.now();
    }
  }

  private arm(): void {
    const wait = this.last + this.pace - this.timing.now();
    if (wait <= 0) {
      this.flush();
      return;
    }
    this.forget = this.timing.after(wait, () => this.flush());
  }
}

/** Work that is put off and done once, however often it was asked for meanwhile. */
export class Later {
  private forgetting: (() => void) | undefined;
  private readonly work: () => void;
  private readonly timing: Timing;
  private readonly wait: number;

  constructor(work: () => void, timing: Timing, wait: number) {
    this.work = work;
    this.timing = timing;
    this.wait = wait;
  }

  /** Do it `wait` milliseconds after the first of these calls. */
  soon(): void {
    this.forgetting ??= this.timing.after(this.wait, () => {
      this.forgetting = undefined;
      this.work();
    });
  }

  /** Do not do it after all. */
  forget(): void {
    this.forgetting?.();
    this.forgetting = undefined;
  }
}

/** The real clock. */
export const realTiming: Timing = {
  now: () => performance.now(),
  after: (ms, work) => {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
};
