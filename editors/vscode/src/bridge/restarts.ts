/**
 * When a bridge that died is started again. Pure.
 *
 * A crash now and then is restarted silently. A bridge that cannot live would be started five times in a fifth of a
 * second and then given up without a word; here the pauses grow, and giving up is reported.
 */

/** Pauses before each restart within the window, in milliseconds; after the last one it is given up. */
export const PAUSES_MS: readonly number[] = [0, 500, 2_000, 8_000];
/** Deaths older than this are forgiven, in milliseconds. */
export const FORGIVEN_MS = 180_000;

/** The deaths that still count. */
export class Restarts {
  private deaths: number[] = [];

  /** The pause before the next start, or undefined when it is time to give up. `now` in milliseconds. */
  died(now: number): number | undefined {
    this.deaths = this.deaths.filter((death) => now - death < FORGIVEN_MS);
    this.deaths.push(now);
    return PAUSES_MS[this.deaths.length - 1];
  }

  /** The user asked for a start: all is forgiven. */
  forgive(): void {
    this.deaths = [];
  }
}
