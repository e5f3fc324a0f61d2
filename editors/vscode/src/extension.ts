/** Wires the objects of one window. Everything heavy is loaded after activation. */
import * as vscode from 'vscode';
import type { Services } from './services.ts';
import { makeServices } from './services.ts';

let services: Services | undefined;

/** Registers what the editor asks for and starts the bridge behind its back. */
export function activate(context: vscode.ExtensionContext): void {
  services = makeServices(context);
  context.subscriptions.push(services);
}

/** Ends the bridge; the editor waits a few seconds for it. */
export async function deactivate(): Promise<void> {
  await services?.close();
  services = undefined;
}
