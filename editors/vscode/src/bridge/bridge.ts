/** The bridge of this window: found, started, watched, started again, and asked. */
import * as vscode from 'vscode';
import {
  WIRE,
  type EditorRequests,
  type Models,
  type Notice,
  type Offer,
  type Options,
  type Progress,
  type Question,
  type Reply,
  type Status,
  type TurnEvent,
  type TurnParams,
  type TurnResult,
} from '../wire.ts';
import { BRIDGE_AWAY, Failure, failureOf } from './failures.ts';
import type { Connection } from './language.ts';
import type { Launch, Problem } from './preflight.ts';
import { Restarts } from './restarts.ts';
import { readOffer } from './offer.ts';
import type { BridgeState, Trouble } from './state.ts';

type Language = typeof import('./language.ts');

/** What the bridge needs of the extension. */
export interface Surroundings {
  log: vscode.LogOutputChannel;
  folder: string;
  environment(): NodeJS.ProcessEnv;
  find(): Promise<{ launch?: Launch; problem?: Problem }>;
  options(): Options;
  middleware: Parameters<Language['open']>[0]['middleware'];
  /** Loads the language client's own bundle. */
  language(): Language;
  ask(question: Question, token: vscode.CancellationToken): Promise<Reply>;
}

/** How long a request waits for a bridge that is starting, in milliseconds. */
const START_WAIT_MS = 15_000;

export class Bridge implements vscode.Disposable {
  private readonly around: Surroundings;
  private readonly restarts = new Restarts();
  private connection: Connection | undefined;
  private current: BridgeState = 'off';
  private opening: Promise<void> | undefined;
  private generation = 0;
  private turns = 0;
  private running = 0;
  private closing = false;
  trouble: Trouble | undefined;

  private readonly states = new vscode.EventEmitter<BridgeState>();
  private readonly models = new vscode.EventEmitter<Models>();
  private readonly statuses = new vscode.EventEmitter<Status>();
  private readonly progresses = new vscode.EventEmitter<Progress>();
  private readonly notices = new vscode.EventEmitter<Notice>();
  readonly onState = this.states.event;
  readonly onModels = this.models.event;
  readonly onStatus = this.statuses.event;
  readonly onProgress = this.progresses.event;
  readonly onNotice = this.notices.event;

  constructor(around: Surroundings) {
    this.around = around;
  }

  get state(): BridgeState {
    return this.current;
  }

  /** The process, for the log and the tests. */
  get pid(): number | undefined {
    return this.connection?.pid;
  }

  /** Turns of this window that run now. */
  get busy(): boolean {
    return this.running > 0;
  }

  /** Starts unless it runs. Never rejects: what went wrong is in `trouble`. */
  start(): Promise<void> {
    this.opening ??= this.open().finally(() => {
      this.opening = undefined;
    });
    return this.opening;
  }

  /** A fresh process, at the user's word or after a changed setting. */
  async restart(): Promise<void> {
    this.restarts.forgive();
    await this.opening;
    await this.close();
    await this.start();
  }

  /** One request. Rejects with a `Failure` only. */
  async request<M extends keyof EditorRequests>(
    method: M,
    params: EditorRequests[M]['params'],
    token?: vscode.CancellationToken,
  ): Promise<EditorRequests[M]['result']> {
    const connection = await this.ready();
    try {
      return (await connection.request(method, params, token)) as EditorRequests[M]['result'];
    } catch (error) {
      throw failureOf(error);
    }
  }

  /** One turn with its events. A cancel lets it end in order, with its counts. Rejects with a `Failure` only. */
  async turn(
    params: TurnParams,
    onEvent: (event: TurnEvent) => void,
    token: vscode.CancellationToken,
  ): Promise<TurnResult> {
    const connection = await this.ready();
    this.turns += 1;
    const name = `turn-${this.generation}-${this.turns}`;
    const parts = connection.onPartial(name, (value) => onEvent(value as TurnEvent));
    const cancel = (): void => void this.cancel(connection, name);
    const cancels = token.onCancellationRequested(cancel);
    this.running += 1;
    try {
      const answer = connection.request('modeld/turn', { ...params, partialResultToken: name });
      if (token.isCancellationRequested) {
        cancel();
      }
      return (await answer) as TurnResult;
    } catch (error) {
      throw failureOf(error);
    } finally {
      this.running -= 1;
      parts.dispose();
      cancels.dispose();
    }
  }

  dispose(): void {
    for (const emitter of [this.states, this.models, this.statuses, this.progresses, this.notices]) {
      emitter.dispose();
    }
  }

  /** Ends the process; the promise is the window's to wait for. */
  async close(): Promise<void> {
    const connection = this.connection;
    this.connection = undefined;
    this.generation += 1;
    this.closing = true;
    try {
      this.become('off');
      await connection?.close();
    } finally {
      this.closing = false;
    }
  }

  private async cancel(connection: Connection, token: string): Promise<void> {
    try {
      await connection.request('modeld/cancel', { token });
    } catch (error) {
      this.around.log.warn(`a cancel was not answered: ${failureOf(error).kind}`); // the turn's own end says the rest
    }
  }

  private async ready(): Promise<Connection> {
    if (this.current === 'starting') {
      await this.settled();
    }
    if (this.connection !== undefined && this.current === 'running') {
      return this.connection;
    }
    throw new Failure(this.trouble?.text ?? BRIDGE_AWAY, 'connection');
  }

  /** The next state that is no longer `starting`, bounded. */
  private settled(): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        watch.dispose();
        resolve();
      };
      const timer = setTimeout(done, START_WAIT_MS);
      const watch = this.onState((state) => {
        if (state !== 'starting') {
          done();
        }
      });
    });
  }

  private async open(): Promise<void> {
    if (this.connection !== undefined) {
      return;
    }
    this.become('starting');
    this.generation += 1;
    const mine = this.generation;
    const began = performance.now();
    try {
      const { launch, problem } = await this.around.find();
      if (launch === undefined) {
        this.fail(problem);
        return;
      }
      const connection = await this.connect(launch, mine);
      if (mine !== this.generation) {
        await connection.close(); // stopped while it started
        return;
      }
      const offer = readOffer(connection.experimental);
      if (offer === undefined || offer.wire !== WIRE) {
        await connection.close();
        this.disagree(offer, launch);
        return;
      }
      this.listen(connection);
      this.connection = connection;
      this.trouble = undefined;
      this.around.log.info(
        `bridge ${offer.version} runs (${launch.origin}: ${launch.command}), process ${connection.pid ?? '?'}, ` +
          `${Math.round(performance.now() - began)} ms`,
      );
      this.become('running');
    } catch (error) {
      if (mine === this.generation) {
        this.around.log.warn(`the bridge could not be started: ${failureOf(error).message}`);
        this.died();
      }
    }
  }

  private connect(launch: Launch, mine: number): Promise<Connection> {
    return this.around.language().open({
      launch,
      folder: this.around.folder,
      environment: this.around.environment(),
      initialization: this.around.options(),
      middleware: this.around.middleware,
      log: this.around.log,
      onClosed: () => {
        if (mine === this.generation && this.current === 'running' && !this.closing) {
          this.connection = undefined;
          this.died();
        }
      },
    });
  }

  private listen(connection: Connection): void {
    connection.onNotification('modeld/modelsChanged', (params) => this.models.fire(params as Models));
    connection.onNotification('modeld/statusChanged', (params) => this.statuses.fire(params as Status));
    connection.onNotification('modeld/progress', (params) => this.progresses.fire(params as Progress));
    connection.onNotification('modeld/notice', (params) => this.notices.fire(params as Notice));
    connection.onRequest('modeld/ask', (params, token) => this.around.ask(params as Question, token));
  }

  private died(): void {
    const pause = this.restarts.died(performance.now());
    if (pause === undefined) {
      this.trouble = {
        kind: 'crashes',
        text: 'The bridge to modeld ends again and again right after its start. The log of the extension shows why.',
        detail: '',
      };
      this.become('failed');
      return;
    }
    this.around.log.warn(`the bridge ended; started again in ${pause} ms`);
    this.become('starting');
    const mine = this.generation;
    setTimeout(() => {
      if (mine === this.generation) {
        void this.start();
      }
    }, pause);
  }

  private fail(problem: Problem | undefined): void {
    const text = problem?.text ?? 'No Python was found to run the bridge with.';
    this.trouble = { kind: problem?.kind ?? 'not_found', text, detail: problem?.detail ?? '' };
    if (problem !== undefined) {
      this.trouble.problem = problem;
    }
    this.around.log.error(`${text} ${problem?.detail ?? ''}`.trim());
    this.become('failed');
  }

  private disagree(offer: Offer | undefined, launch: Launch): void {
    const theirs = offer === undefined ? 'unknown' : `${offer.wire} (version ${offer.version})`;
    const older = offer === undefined || offer.wire < WIRE;
    this.trouble = {
      kind: 'wire',
      text: older
        ? 'The installed modeld is older than this extension can speak with. Upgrade it, then try again.'
        : 'The installed modeld is newer than this extension. Update the extension.',
      detail: `extension ${WIRE}, bridge ${theirs}, started as ${launch.command}`,
    };
    this.around.log.error(`${this.trouble.text} (${this.trouble.detail})`);
    this.become('failed');
  }

  private become(state: BridgeState): void {
    if (this.current !== state) {
      this.current = state;
      this.states.fire(state);
    }
  }
}

