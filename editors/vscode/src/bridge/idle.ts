/** Restarts the bridge once nothing runs: a changed setting never ends an answer that is being written. Pure. */

/** How often a waiting restart looks again, in milliseconds. */
export const IDLE_CHECK_MS = 500;

/** What is restarted. */
export interface Restartable {
  readonly busy: boolean;
  restart(): Promise<void>;
}

export class IdleRestart {
  private readonly bridge: Restartable;
  private timer: NodeJS.Timeout | undefined;

  constructor(bridge: Restartable) {
    this.bridge = bridge;
  }

  /** Now, or when the running turns have ended; asked several times it is done once. */
  restart(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (!this.bridge.busy) {
      void this.bridge.restart();
      return;
    }
    this.timer = setTimeout(() => this.restart(), IDLE_CHECK_MS);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }
}
