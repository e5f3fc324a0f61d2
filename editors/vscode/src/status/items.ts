/** The status bar entry and the language status of this window. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import type { Library } from '../models/library.ts';
import { Later, realTiming } from '../models/pacing.ts';
import { settings } from '../settings.ts';
import type { Status } from '../wire.ts';
import { shown, type Shown } from './text.ts';

const SEVERITIES = {
  information: vscode.LanguageStatusSeverity.Information,
  warning: vscode.LanguageStatusSeverity.Warning,
  error: vscode.LanguageStatusSeverity.Error,
};

/** The stages of a turn follow each other faster than anybody reads, in milliseconds. */
const SHOW_MS = 60;

export class StatusItems implements vscode.Disposable {
  private readonly bridge: Bridge;
  private readonly library: Library;
  private readonly bar = vscode.window.createStatusBarItem('modeld.status', vscode.StatusBarAlignment.Right, 90);
  private readonly language = vscode.languages.createLanguageStatusItem('modeld.status', '*');
  private readonly watches: vscode.Disposable[];
  private readonly showing = new Later(() => this.show(), realTiming, SHOW_MS);
  /** The latest status, undefined while the bridge is away. */
  status: Status | undefined;

  constructor(bridge: Bridge, library: Library) {
    this.bridge = bridge;
    this.library = library;
    this.bar.name = 'Local models';
    this.language.name = 'Local models';
    this.watches = [
      bridge.onStatus((status) => this.learn(status)),
      bridge.onState((state) => {
        if (state === 'running') {
          void this.ask();
        } else {
          this.learn(undefined);
        }
      }),
      library.onPick(() => this.showing.soon()),
      vscode.workspace.onDidChangeConfiguration((change) => {
        if (change.affectsConfiguration('modeld.statusBar')) {
          this.show();
        }
      }),
    ];
    this.show();
  }

  dispose(): void {
    this.showing.forget();
    vscode.Disposable.from(this.bar, this.language, ...this.watches).dispose();
  }

  private async ask(): Promise<void> {
    try {
      this.learn(await this.bridge.request('modeld/status', {}));
    } catch {
      this.show(); // the bridge's own state tells what is wrong
    }
  }

  private learn(status: Status | undefined): void {
    this.status = status;
    this.showing.soon();
  }

  private show(): void {
    const { held } = this.library;
    const nameOf = (id: string): string => held.find(id)?.name ?? id;
    const now = shown(this.bridge.state, this.bridge.trouble, this.status, held.picked, nameOf);
    const command = this.command(now);
    this.bar.text = now.text;
    this.bar.tooltip = tooltip(now);
    this.bar.command = command;
    this.bar.backgroundColor = background(now);
    this.bar.accessibilityInformation = { label: `Local models: ${now.line}` };
    this.language.text = now.text.replace(/\$\([^)]*\)\s*/g, '');
    this.language.detail = now.line;
    this.language.severity = SEVERITIES[now.severity];
    this.language.busy = now.busy;
    this.language.command = { command, title: command === 'modeld.start' ? 'Start modeld' : 'Models…' };
    if (settings().statusBar) {
      this.bar.show();
    } else {
      this.bar.hide();
    }
  }

  private command(now: Shown): string {
    if (this.bridge.state === 'failed') {
      return 'modeld.repair';
    }
    return now.severity === 'warning' && this.status?.startable === true ? 'modeld.start' : 'modeld.pickModel';
  }
}

function background(now: Shown): vscode.ThemeColor | undefined {
  return now.severity === 'error' ? new vscode.ThemeColor('statusBarItem.errorBackground') : undefined;
}

function tooltip(now: Shown): vscode.MarkdownString {
  const text = new vscode.MarkdownString();
  text.appendText(now.line);
  for (const detail of now.details) {
    text.appendMarkdown('\n\n').appendText(detail);
  }
  return text;
}
