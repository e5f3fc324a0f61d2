/** Ghost text: off until switched on, quiet when it cannot help. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { flash } from '../messages.ts';
import { settings } from '../settings.ts';
import type { Status } from '../wire.ts';
import { mayAsk } from './gate.ts';

type Items = vscode.InlineCompletionItem[] | vscode.InlineCompletionList | null | undefined;
type Next = (
  document: vscode.TextDocument,
  position: vscode.Position,
  context: vscode.InlineCompletionContext,
  token: vscode.CancellationToken,
) => vscode.ProviderResult<Items>;

/** What stands between the editor and the bridge's `textDocument/inlineCompletion`. */
export function inlineMiddleware(
  bridge: () => Bridge,
  status: () => Status | undefined,
): {
  provideInlineCompletionItems(
    document: vscode.TextDocument,
    position: vscode.Position,
    context: vscode.InlineCompletionContext,
    token: vscode.CancellationToken,
    next: Next,
  ): Promise<vscode.InlineCompletionItem[] | vscode.InlineCompletionList | null>;
} {
  return {
    async provideInlineCompletionItems(document, position, context, token, next) {
      const chosen = settings(document);
      const may = mayAsk({
        enabled: chosen.inlineEnabled,
        scheme: document.uri.scheme,
        language: document.languageId,
        disabledLanguages: chosen.inlineLanguagesOff,
        busy: bridge().busy,
        serving: status()?.service === 'running',
      });
      if (!may) {
        return null;
      }
      const typed = context.triggerKind === vscode.InlineCompletionTriggerKind.Automatic;
      if (typed && !(await pause(chosen.inlineDelay, token))) {
        return null; // a newer keystroke asks instead
      }
      try {
        return (await next(document, position, context, token)) ?? null;
      } catch {
        return null; // the bridge's log tells; a popup at a keystroke helps nobody
      }
    },
  };
}

/** False when it was cancelled meanwhile. */
function pause(ms: number, token: vscode.CancellationToken): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      watch.dispose();
      resolve(!token.isCancellationRequested);
    }, ms);
    const watch = token.onCancellationRequested(() => {
      clearTimeout(timer);
      watch.dispose();
      resolve(false);
    });
  });
}

/** The explicit switch. */
export function registerInlineCommands(): vscode.Disposable {
  return vscode.commands.registerCommand('modeld.toggleInlineCompletion', async () => {
    const now = !settings().inlineEnabled;
    const target = vscode.ConfigurationTarget.Global;
    await vscode.workspace.getConfiguration('modeld').update('inlineCompletion.enabled', now, target);
    flash(`Inline completion of modeld is ${now ? 'on' : 'off'}.`, 4000);
  });
}
