/** Code of an answer as a change of a file: shown as a diff first, applied at the user's word. */
import { randomUUID } from 'node:crypto';
import * as vscode from 'vscode';
import { inform, warn } from '../messages.ts';
import { plain } from '../plain.ts';
import type { Target } from './conversation.ts';
import { indentedLike } from './fence.ts';
import { lostText, placeIn } from './target.ts';

/** The scheme of the proposed side of a diff. */
export const SCHEME = 'modeld-proposal';

interface Proposal {
  document: vscode.Uri;
  /** The text that the change was made for. A version of the document would not do: it starts over with each opening. */
  before: string;
  range: vscode.Range;
  code: string;
  whole: string;
}

export class Proposals implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly open = new Map<string, Proposal>();
  private readonly watches: vscode.Disposable[];

  constructor() {
    this.watches = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.workspace.onDidCloseTextDocument((document) => this.open.delete(document.uri.toString())),
      vscode.commands.registerCommand('modeld.acceptProposal', () => this.accept()),
      vscode.commands.registerCommand('modeld.discardProposal', () => this.close()),
    ];
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    return this.open.get(uri.toString())?.whole ?? '';
  }

  /** Show what `code` would change: at the place it was asked for, else at the selection of the file in front. */
  async propose(code: string, target: Target | undefined): Promise<void> {
    const place = target === undefined ? inFront() : await placeOf(target);
    if (typeof place === 'string') {
      await warn(place);
      return;
    }
    if (place === undefined) {
      await inform('Open the file that the code belongs to first.');
      return;
    }
    const { document, range } = place;
    const before = document.getText();
    const original = document.getText(range);
    const eol = document.eol === vscode.EndOfLine.CRLF ? '\r\n' : '\n';
    const fitted = indentedLike(code.replace(/\r?\n$/, ''), original).replace(/\r?\n/g, eol);
    const whole = before.slice(0, document.offsetAt(range.start)) + fitted + before.slice(document.offsetAt(range.end));
    // A tab of an earlier life of the window must not mean this change.
    const uri = vscode.Uri.from({ scheme: SCHEME, path: document.uri.path, query: randomUUID() });
    this.open.set(uri.toString(), { document: document.uri, before, range, code: fitted, whole });
    const name = plain(vscode.workspace.asRelativePath(document.uri));
    await vscode.commands.executeCommand('vscode.diff', document.uri, uri, `${name} (proposed change)`);
  }

  dispose(): void {
    vscode.Disposable.from(...this.watches).dispose();
  }

  private async accept(): Promise<void> {
    const found = this.shown();
    if (found === undefined) {
      return;
    }
    const proposal = this.open.get(found);
    if (proposal === undefined) {
      await warn('This change was proposed before the window was reloaded. Apply the code again.');
      return;
    }
    const document = await vscode.workspace.openTextDocument(proposal.document);
    if (document.getText() !== proposal.before) {
      await warn('The file has changed since. Apply the code again to see it as it is now.');
      return;
    }
    const edit = new vscode.WorkspaceEdit();
    edit.replace(proposal.document, proposal.range, proposal.code);
    if (await vscode.workspace.applyEdit(edit)) {
      await this.close();
      await vscode.window.showTextDocument(document);
    }
  }

  private async close(): Promise<void> {
    const found = this.shown();
    if (found === undefined) {
      return;
    }
    this.open.delete(found);
    await vscode.commands.executeCommand('workbench.action.closeActiveEditor');
  }

  /** The proposal of the tab in front. */
  private shown(): string | undefined {
    const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
    return input instanceof vscode.TabInputTextDiff && input.modified.scheme === SCHEME
      ? input.modified.toString()
      : undefined;
  }
}

interface Where {
  document: vscode.TextDocument;
  range: vscode.Range;
}

/** Where the code belongs now, or why that cannot be determined: the document may have changed since the question. */
async function placeOf(target: Target): Promise<Where | string> {
  const uri = vscode.Uri.parse(target.uri);
  const file = vscode.workspace.asRelativePath(uri);
  let document: vscode.TextDocument;
  try {
    document = await vscode.workspace.openTextDocument(uri);
  } catch {
    return lostText(file, 'unreadable'); // deleted, moved, or no text any more
  }
  const found = placeIn(document.getText(), target);
  if (typeof found === 'string') {
    return lostText(file, found);
  }
  return { document, range: new vscode.Range(document.positionAt(found.start), document.positionAt(found.end)) };
}

/** The selection of the file in front. */
function inFront(): Where | undefined {
  const editor = vscode.window.activeTextEditor ?? vscode.window.visibleTextEditors[0];
  return editor === undefined ? undefined : { document: editor.document, range: editor.selection };
}
