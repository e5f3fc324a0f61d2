/** The chat panel: a view of our own, which needs no account. */
import { randomBytes } from 'node:crypto';
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { failureOf } from '../bridge/failures.ts';
import type { Library } from '../models/library.ts';
import { plain, plainAll } from '../plain.ts';
import { Later, Pacer, realTiming } from '../models/pacing.ts';
import type { Proposals } from './proposals.ts';
import { apply, Conversation, fail, finish, type Target, type Turn } from './conversation.ts';
import { page } from './html.ts';
import { readMessage, type Attachment, type Chip, type FromPanel, type ToPanel } from './protocol.ts';
import { codeAt, insertAtCursor, selectedCode } from './code.ts';

/** The view's name in `package.json`. */
export const PANEL = 'modeld.chat';
const KEPT = 'modeld.conversation';
/** Turns that are kept between windows. */
const KEPT_TURNS = 50;
/** A stage that is over sooner is not shown, in milliseconds: it would only hold up the text behind it. */
const STAGE_MS = 120;

/** A question that a command asks in the panel. */
export interface Prepared {
  question: string;
  attachment?: string;
  target?: Target;
}

export class ChatPanel implements vscode.WebviewViewProvider, vscode.Disposable {
  private readonly bridge: Bridge;
  private readonly library: Library;
  private readonly proposals: Proposals;
  private readonly memory: vscode.Memento;
  private readonly files: vscode.Uri;
  private readonly conversation: Conversation;
  private readonly watches: vscode.Disposable[];
  private view: vscode.WebviewView | undefined;
  private cancel: vscode.CancellationTokenSource | undefined;
  private pacer: Pacer<'text' | 'reasoning'> | undefined;
  private ending: Promise<void> = Promise.resolve();
  private readonly shown = new Map<ToPanel['type'], string>();

  constructor(bridge: Bridge, library: Library, proposals: Proposals, context: vscode.ExtensionContext) {
    this.bridge = bridge;
    this.library = library;
    this.proposals = proposals;
    this.memory = context.workspaceState;
    this.files = vscode.Uri.joinPath(context.extensionUri, 'dist');
    this.conversation = new Conversation(this.memory.get<Turn[]>(KEPT, []));
    this.watches = [
      vscode.window.registerWebviewViewProvider(PANEL, this),
      ...[library.onChange, library.onPick, bridge.onState].map((event) =>
        (event as vscode.Event<unknown>)(() => this.postNew({ type: 'chip', chip: this.chip() })),
      ),
      vscode.window.onDidChangeTextEditorSelection(() => this.postNew({ type: 'selection', selection: this.selection() })),
      vscode.window.onDidChangeActiveTextEditor(() => this.postNew({ type: 'selection', selection: this.selection() })),
    ];
  }

  resolveWebviewView(view: vscode.WebviewView): void {
    this.view = view;
    const web = view.webview;
    web.options = { enableScripts: true, localResourceRoots: [this.files] };
    web.onDidReceiveMessage((raw) => {
      const message = readMessage(raw);
      if (message !== undefined) {
        void this.receive(message);
      }
    });
    view.onDidDispose(() => {
      this.view = undefined;
    });
    web.html = page({
      script: web.asWebviewUri(vscode.Uri.joinPath(this.files, 'panel.js')).toString(),
      style: web.asWebviewUri(vscode.Uri.joinPath(this.files, 'panel.css')).toString(),
      csp: web.cspSource,
      nonce: randomBytes(16).toString('base64'),
    });
  }

  /** Bring the panel to the front with the cursor in its input. */
  async focus(): Promise<void> {
    await vscode.commands.executeCommand(`${PANEL}.focus`);
    this.post({ type: 'focus' });
  }

  /** Ask something in the panel. A turn that still runs is ended first. */
  async ask(prepared: Prepared): Promise<void> {
    await vscode.commands.executeCommand(`${PANEL}.focus`);
    await this.question(prepared);
  }

  private async question(prepared: Prepared): Promise<void> {
    await this.stop();
    const turn = this.conversation.ask(
      prepared.question,
      this.library.held.current?.id ?? '',
      prepared.attachment ?? '',
      prepared.target,
    );
    await this.run(turn);
  }

  dispose(): void {
    this.cancel?.cancel();
    vscode.Disposable.from(...this.watches).dispose();
  }

  private async receive(message: FromPanel): Promise<void> {
    switch (message.type) {
      case 'ready':
        this.pacer?.flush(); // what waits there stands in the turn already
        this.post(this.everything());
        return;
      case 'ask': {
        const code = message.attach ? selectedCode() : undefined;
        const target = code?.target;
        await this.question({ question: message.text, attachment: code?.text ?? '', ...(target && { target }) });
        return;
      }
      case 'stop':
        await this.stop();
        return;
      case 'retry': {
        const turn = this.conversation.retry(message.id, this.library.held.current?.id ?? '');
        if (turn !== undefined) {
          this.post(this.everything());
          await this.run(turn);
        }
        return;
      }
      case 'clear':
        this.cancel?.cancel(); // not waited for: a question that follows at once must find the cleared conversation
        this.conversation.clear();
        this.keep();
        this.post(this.everything());
        return;
      case 'pick':
        await vscode.commands.executeCommand('modeld.pickModel');
        return;
      case 'insert':
        await insertAtCursor(message.code);
        return;
      case 'apply':
        await this.proposals.propose(message.code, this.conversation.turns.find((turn) => turn.id === message.id)?.target);
        return;
      case 'copy':
        await vscode.env.clipboard.writeText(message.code);
        return;
      case 'remedy':
        await vscode.commands.executeCommand(message.command);
    }
  }

  /** Ends the running turn and waits for its end, so that the next one does not overtake it. */
  private async stop(): Promise<void> {
    const running = this.ending;
    this.cancel?.cancel();
    await running;
  }

  private run(turn: Turn): Promise<void> {
    this.ending = this.answer(turn);
    return this.ending;
  }

  private async answer(turn: Turn): Promise<void> {
    const cancel = new vscode.CancellationTokenSource();
    this.cancel = cancel;
    this.tell(turn, { type: 'turn', turn });
    const pacer = new Pacer<'text' | 'reasoning'>(
      (kind, text) => this.tell(turn, { type: 'delta', id: turn.id, kind, text }),
      realTiming,
    );
    this.pacer = pacer;
    // the text flows by itself
    const stage = new Later(() => this.tell(turn, { type: 'turn', turn: { ...turn, answer: '', thoughts: '' } }), realTiming, STAGE_MS);
    try {
      const messages = this.conversation.messages();
      const params = { model: turn.model, messages, overflow: 'trim' as const, conversation: 'panel' };
      const result = await this.bridge.turn(
        params,
        (event) => {
          if (apply(turn, event)) {
            stage.soon();
          } else if (event.type === 'text' || event.type === 'reasoning') {
            pacer.push(event.type, event.text);
          }
        },
        cancel.token,
      );
      finish(turn, { ...result, model: this.library.held.find(result.model)?.name ?? result.model });
    } catch (error) {
      const failure = failureOf(error);
      fail(turn, failure.message, cancel.token.isCancellationRequested ? 'cancelled' : failure.kind);
    } finally {
      stage.forget();
      pacer.flush();
      this.pacer = undefined;
      this.cancel = undefined;
      cancel.dispose();
      this.keep();
      this.tell(turn, { type: 'turn', turn });
    }
  }

  /** A turn that was cleared away has nothing more to say. */
  private tell(turn: Turn, message: ToPanel): void {
    if (this.conversation.turns.includes(turn)) {
      this.post(message);
    }
  }

  private keep(): void {
    void this.memory.update(KEPT, this.conversation.turns.slice(-KEPT_TURNS));
  }

  private everything(): ToPanel {
    this.shown.clear();
    return {
      type: 'everything',
      turns: this.conversation.turns,
      chip: this.chip(),
      selection: this.selection(),
    };
  }

  private chip(): Chip {
    const model = this.library.held.current;
    if (model === undefined) {
      const { name, reason } = this.library.held.explanation;
      return plainAll({ name, detail: this.bridge.trouble?.text ?? reason, ready: false });
    }
    return plainAll({ name: model.name, detail: model.detail, ready: model.selectable });
  }

  private selection(): Attachment | null {
    const editor = vscode.window.activeTextEditor;
    return editor === undefined || editor.selection.isEmpty ? null : { label: plain(codeAt(editor).label) };
  }

  /** What the page shows already is not sent again. */
  private postNew(message: ToPanel & { type: 'chip' | 'selection' }): void {
    const text = JSON.stringify(message);
    if (this.shown.get(message.type) !== text) {
      this.shown.set(message.type, text);
      this.post(message);
    }
  }

  private post(message: ToPanel): void {
    void this.view?.webview.postMessage(message);
  }
}
