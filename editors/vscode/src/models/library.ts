/** What this window knows of the models: held through restarts of everything, reported on each shown change. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import type { BridgeState } from '../bridge/state.ts';
import { failureOf } from '../bridge/failures.ts';
import type { Models } from '../wire.ts';
import { GRACE_MS, HeldModels, type Kept } from './held.ts';
import { decoration, information } from './information.ts';
import { Later, realTiming } from './pacing.ts';

/** Where the list is kept between windows; picks differ by workspace, so the list does too. */
const KEPT = 'modeld.models';
const WAITING = 'waiting for modeld';
/** The list is written down this long after a change, in milliseconds: a turn changes states twice. */
const KEEP_MS = 500;

export class Library implements vscode.Disposable {
  readonly held: HeldModels;
  private readonly bridge: Bridge;
  private readonly memory: vscode.Memento;
  private readonly emitter = new vscode.EventEmitter<void>();
  private readonly picks = new vscode.EventEmitter<string>();
  private readonly watches: vscode.Disposable[];
  private readonly keeping = new Later(() => void this.memory.update(KEPT, this.held.kept), realTiming, KEEP_MS);
  private fingerprint: string;
  private grace: NodeJS.Timeout | undefined;
  /** Something shown of the models changed. */
  readonly onChange = this.emitter.event;
  /** Another model is picked for this workspace. */
  readonly onPick = this.picks.event;

  constructor(bridge: Bridge, memory: vscode.Memento) {
    this.bridge = bridge;
    this.memory = memory;
    this.held = new HeldModels(memory.get<Kept>(KEPT), WAITING);
    this.fingerprint = this.look();
    this.watches = [
      bridge.onModels((models) => this.learn(models)),
      bridge.onState((state) => this.follow(state)),
    ];
  }

  /** Ask for the list now. Never rejects. */
  async refresh(): Promise<void> {
    try {
      this.learn(await this.bridge.request('modeld/models', {}));
    } catch (error) {
      failureOf(error); // the held list stands; the bridge's state tells the rest
    }
  }

  /** Remember the user's pick for this workspace. */
  async pick(model: string): Promise<void> {
    this.held.picked = model;
    this.picks.fire(model);
    await this.bridge.request('modeld/pick', { model });
  }

  dispose(): void {
    clearTimeout(this.grace);
    this.keeping.forget();
    vscode.Disposable.from(...this.watches, this.emitter, this.picks).dispose();
  }

  private learn(models: Models): void {
    const before = this.held.picked;
    this.held.learn(models);
    this.tell();
    if (this.held.picked !== before) {
      this.picks.fire(this.held.picked);
    }
    this.keeping.soon();
  }

  private follow(state: BridgeState): void {
    clearTimeout(this.grace);
    if (state === 'running') {
      void this.refresh();
      return;
    }
    this.held.away(state === 'failed' ? 'modeld cannot be reached' : WAITING);
    this.tell();
    this.grace = setTimeout(() => {
      this.held.expire(this.bridge.trouble?.text ?? 'the bridge to modeld does not run');
      this.tell();
    }, GRACE_MS);
  }

  private tell(): void {
    const now = this.look();
    if (now !== this.fingerprint) {
      this.fingerprint = now;
      this.emitter.fire();
    }
  }

  /** Everything that is shown of the models; a change of anything else is no news. */
  private look(): string {
    return JSON.stringify(this.held.listed.map((model) => [information(model), decoration(model)]));
  }
}
