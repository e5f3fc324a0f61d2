/** Loads, switches and pulls of this window as notifications that can cancel them. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { during } from '../messages.ts';
import type { Progress } from '../wire.ts';

/** Shorter work is not worth a notification, in milliseconds. */
const WORTH_MS = 400;

interface Shown {
  latest: Progress;
  end: () => void;
  tell: (progress: Progress) => void;
}

export class LoadProgress implements vscode.Disposable {
  private readonly bridge: Bridge;
  private readonly running = new Map<string, Shown>();
  private readonly watches: vscode.Disposable[];

  constructor(bridge: Bridge) {
    this.bridge = bridge;
    this.watches = [
      bridge.onProgress((progress) => this.learn(progress)),
      bridge.onState((state) => {
        if (state !== 'running') {
          this.endAll();
        }
      }),
    ];
  }

  dispose(): void {
    this.endAll();
    vscode.Disposable.from(...this.watches).dispose();
  }

  private learn(progress: Progress): void {
    if (!progress.mine || progress.operation === 'unload') {
      return;
    }
    const key = `${progress.operation} ${progress.model}`;
    const known = this.running.get(key);
    if (progress.done) {
      known?.end();
      this.running.delete(key);
    } else if (known !== undefined) {
      known.latest = progress;
      known.tell(progress);
    } else {
      this.running.set(key, this.begin(progress));
    }
  }

  private begin(first: Progress): Shown {
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const shown: Shown = { latest: first, end, tell: () => undefined };
    const timer = setTimeout(() => void this.show(shown, ended), WORTH_MS);
    shown.end = () => {
      clearTimeout(timer);
      end();
    };
    return shown;
  }

  private async show(shown: Shown, ended: Promise<void>): Promise<void> {
    const { operation, model } = shown.latest;
    const title = operation === 'pull' ? `Fetching ${model}` : `Loading ${model}`;
    const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
    await during(options, async (report, token) => {
      let reported = 0;
      shown.tell = (progress) => {
        const now = Math.round((progress.fraction ?? 0) * 100);
        const message = progress.operation === 'pull' ? progress.text : `${now} %`;
        report(message, Math.max(0, now - reported));
        reported = Math.max(reported, now);
      };
      shown.tell(shown.latest);
      token.onCancellationRequested(() => void this.cancel(model));
      await ended;
    });
  }

  private async cancel(model: string): Promise<void> {
    try {
      await this.bridge.request('modeld/cancel', { model });
    } catch {
      this.endAll(); // the bridge is gone, and the work with it
    }
  }

  private endAll(): void {
    for (const shown of this.running.values()) {
      shown.end();
    }
    this.running.clear();
  }
}
