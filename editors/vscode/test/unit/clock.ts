/** A clock for tests: it stands still until it is moved. */
import type { Timing } from '../../src/models/pacing.ts';

export class Clock implements Timing {
  time = 0;
  private timers: { at: number; work: () => void }[] = [];

  now(): number {
    return this.time;
  }

  after(ms: number, work: () => void): () => void {
    const timer = { at: this.time + ms, work };
    this.timers.push(timer);
    return () => {
      this.timers = this.timers.filter((one) => one !== timer);
    };
  }

  pass(ms: number): void {
    this.time += ms;
    const due = this.timers.filter((timer) => timer.at <= this.time);
    this.timers = this.timers.filter((timer) => timer.at > this.time);
    for (const timer of due) {
      timer.work();
    }
  }

  get armed(): number {
    return this.timers.length;
  }
}
