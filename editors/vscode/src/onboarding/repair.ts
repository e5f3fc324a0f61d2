/** What is wrong with the bridge, said once with its ways out. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { installArguments } from '../bridge/preflight.ts';
import { complain, inform } from '../messages.ts';
import { remedies } from '../bridge/state.ts';

export class Repair implements vscode.Disposable {
  private readonly bridge: Bridge;
  private readonly watches: vscode.Disposable[];
  private reported = '';

  constructor(bridge: Bridge) {
    this.bridge = bridge;
    this.watches = [
      bridge.onState((state) => {
        if (state === 'failed') {
          void this.tellOnce();
        } else if (state === 'running') {
          this.reported = '';
        }
      }),
      vscode.commands.registerCommand('modeld.repair', () => this.tell()),
      vscode.commands.registerCommand('modeld.restartBridge', () => bridge.restart()),
      vscode.commands.registerCommand('modeld.install', () => this.install()),
      vscode.commands.registerCommand('modeld.choosePython', () => this.choosePython()),
    ];
  }

  dispose(): void {
    vscode.Disposable.from(...this.watches).dispose();
  }

  /** The same trouble is not reported again by itself: a popup at each keystroke helps nobody. */
  private async tellOnce(): Promise<void> {
    const text = this.bridge.trouble?.text ?? '';
    if (text !== this.reported) {
      this.reported = text;
      await this.tell();
    }
  }

  private async tell(): Promise<void> {
    const trouble = this.bridge.trouble;
    if (trouble === undefined) {
      await inform('The bridge to modeld works.');
      return;
    }
    const ways = remedies(trouble);
    const chosen = await complain(trouble.text, ...ways.map((way) => way.label));
    const way = ways.find((one) => one.label === chosen);
    if (way !== undefined) {
      await vscode.commands.executeCommand(way.command);
    }
  }

  /** In a terminal, where the user sees what happens; the bridge is tried again when it closes. */
  private async install(): Promise<void> {
    const problem = this.bridge.trouble?.problem;
    const command = problem && installArguments(problem);
    if (command === undefined) {
      await inform('Choose the Python that modeld is to be installed in first.');
      return;
    }
    const [shellPath, ...shellArgs] = command;
    const terminal = vscode.window.createTerminal({ name: 'Installing modeld', shellPath: shellPath ?? '', shellArgs });
    terminal.show();
    const closed = vscode.window.onDidCloseTerminal((ended) => {
      if (ended === terminal) {
        closed.dispose();
        void this.bridge.restart();
      }
    });
  }

  private async choosePython(): Promise<void> {
    const type = 'Type its path…';
    const browse = 'Browse…';
    const standard = 'Use the default';
    const items = [
      { label: type, description: 'for example ~/.venv/bin/python' },
      { label: browse },
      { label: standard, description: "the Python extension's choice, else the one on PATH" },
    ];
    const chosen = await vscode.window.showQuickPick(items, { title: 'Python that has modeld' });
    if (chosen?.label === standard) {
      await setPython(undefined);
    } else if (chosen?.label === type) {
      const path = await vscode.window.showInputBox({ title: 'Path of the Python', ignoreFocusOut: true });
      if (path?.trim()) {
        await setPython(path.trim());
      }
    } else if (chosen?.label === browse) {
      const [file] = (await vscode.window.showOpenDialog({ title: 'Python that has modeld', openLabel: 'Use' })) ?? [];
      if (file !== undefined) {
        await setPython(file.fsPath);
      }
    }
  }
}

/** The bridge follows the setting by itself. */
async function setPython(path: string | undefined): Promise<void> {
  await vscode.workspace.getConfiguration('modeld').update('python', path, vscode.ConfigurationTarget.Global);
}
