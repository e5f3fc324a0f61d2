/**
 * Token counts asked one by one and sent together: the editor counts every message and every tool by itself, hundreds
 * one after the other before a turn, so that a slow answer to each would hold up the turn for minutes. Pure.
 */
import type { Counted } from '../wire.ts';
import type { Timing } from './pacing.ts';

/** Counts of `texts` by the tokenizer of `model`, in order. Rejects when nobody can count. */
export type Counter = (model: string, texts: string[]) => Promise<Pick<Counted, 'each' | 'exact'>>;

/** Kept answers; the editor asks for the same history again at every turn. */
const KEPT_MOST = 2000;
const KEPT_CHARACTERS = 20_000;
/** An estimate when nobody can count: fewer characters than a token has in plain text, so that it errs to the safe side. */
const CHARACTERS_A_TOKEN = 3;
/** Longest wait for a tokenizer, in milliseconds. A resident model answers in a few. */
export const PATIENCE_MS = 250;
/** How long a tokenizer that was late is not waited for, in milliseconds; a load ends it. */
export const DOUBT_MS = 30_000;

interface Asked {
  text: string;
  answer: (tokens: number) => void;
}

/** One batch for each model and turn of the event loop. */
export class TokenCounts {
  private readonly counter: Counter;
  private readonly timing: Timing;
  private readonly batches = new Map<string, Asked[]>();
  private readonly known = new Map<string, number>();
  private readonly doubted = new Map<string, number>();

  constructor(counter: Counter, timing: Timing) {
    this.counter = counter;
    this.timing = timing;
  }

  /** Tokens of `text`. Never rejects and never waits long: without a tokenizer it is an upper estimate. */
  count(model: string, text: string): Promise<number> {
    const known = this.known.get(key(model, text));
    if (known !== undefined) {
      return Promise.resolve(known);
    }
    if ((this.doubted.get(model) ?? 0) > this.timing.now()) {
      return Promise.resolve(guess(text));
    }
    return new Promise((answer) => {
      const batch = this.batches.get(model);
      if (batch !== undefined) {
        batch.push({ text, answer });
        return;
      }
      this.batches.set(model, [{ text, answer }]);
      queueMicrotask(() => void this.send(model));
    });
  }

  /** The models have changed: a tokenizer may be there now. */
  trust(): void {
    this.doubted.clear();
  }

  private async send(model: string): Promise<void> {
    const batch = this.batches.get(model) ?? [];
    this.batches.delete(model);
    const forget = this.timing.after(PATIENCE_MS, () => this.giveUp(model, batch));
    try {
      const texts = batch.map((one) => one.text);
      const { each, exact } = await this.counter(model, texts);
      if (!exact) {
        this.giveUp(model, batch);
      }
      for (const [index, one] of batch.entries()) {
        const tokens = each[index];
        if (exact && tokens !== undefined && one.text.length <= KEPT_CHARACTERS) {
          this.remember(key(model, one.text), tokens);
        }
        one.answer(tokens ?? guess(one.text));
      }
    } catch {
      this.giveUp(model, batch);
    } finally {
      forget();
    }
  }

  /** An answer that was given stays: a promise settles once. */
  private giveUp(model: string, batch: readonly Asked[]): void {
    this.doubted.set(model, this.timing.now() + DOUBT_MS);
    for (const one of batch) {
      one.answer(guess(one.text));
    }
  }

  private remember(name: string, tokens: number): void {
    if (this.known.size >= KEPT_MOST) {
      const oldest = this.known.keys().next().value;
      if (oldest !== undefined) {
        this.known.delete(oldest);
      }
    }
    this.known.set(name, tokens);
  }
}

/** An upper estimate. */
export function guess(text: string): number {
  return Math.ceil(text.length / CHARACTERS_A_TOKEN);
}

function key(model: string, text: string): string {
  return `${model}\u0000${text}`;
}
