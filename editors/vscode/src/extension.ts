/** Wires the objects of one window. Everything heavy is loaded after activation. */
import * as vscode from 'vscode';
import type { Services } from './services.ts';
import { makeServices } from './services.ts';

let services: Services | undefined;

/** Registers what the editor asks for, in two steps between which others have their turn; commands wait for both. */
export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const made = makeServices(context);
  services = made;
  context.subscriptions.push(made);
  await new Promise<void>((resolve) => setImmediate(resolve));
  if (services === made) {
    made.complete();
  }
}

/** Ends the bridge; the editor waits a few seconds for it. */
export async function deactivate(): Promise<void> {
  await services?.close();
  services = undefined;
}
