/** Code of an answer as a change of a file: shown as a diff first, applied at the user's word. */
import * as vscode from 'vscode';
import type { Target } from './conversation.ts';
import { indentedLike } from './fence.ts';
import { moved } from './target.ts';

/** The scheme of the proposed side of a diff. */
export const SCHEME = 'modeld-proposal';

interface Proposal {
  document: vscode.Uri;
  version: number;
  range: vscode.Range;
  code: string;
  whole: string;
}

export class Proposals implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly open = new Map<string, Proposal>();
  private readonly watches: vscode.Disposable[];
  private last = 0;

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
    const place = await placeOf(target);
    if (place === undefined) {
      await vscode.window.showInformationMessage('Open the file that the code belongs to first.');
      return;
    }
    const { document, range } = place;
    const before = document.getText();
    const original = document.getText(range);
    const fitted = indentedLike(code.replace(/\n$/, ''), original);
    const whole = before.slice(0, document.offsetAt(range.start)) + fitted + before.slice(document.offsetAt(range.end));
    this.last += 1;
    const uri = vscode.Uri.from({ scheme: SCHEME, path: document.uri.path, query: String(this.last) });
    this.open.set(uri.toString(), { document: document.uri, version: document.version, range, code: fitted, whole });
    const name = vscode.workspace.asRelativePath(document.uri);
    await vscode.commands.executeCommand('vscode.diff', document.uri, uri, `${name} (proposed change)`);
  }

  dispose(): void {
    vscode.Disposable.from(...this.watches).dispose();
  }

  private async accept(): Promise<void> {
    const proposal = this.open.get(this.shown() ?? '');
    if (proposal === undefined) {
      return;
    }
    const document = await vscode.workspace.openTextDocument(proposal.document);
    if (document.version !== proposal.version) {
      await vscode.window.showWarningMessage('The file has changed since. Apply the code again to see it as it is now.');
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

/** Where the code belongs now; the document may have changed since the question. */
async function placeOf(
  target: Target | undefined,
): Promise<{ document: vscode.TextDocument; range: vscode.Range } | undefined> {
  if (target !== undefined) {
    const document = await vscode.workspace.openTextDocument(vscode.Uri.parse(target.uri));
    const found = moved(document.getText(), target, document.version);
    if (found !== undefined) {
      return { document, range: new vscode.Range(document.positionAt(found.start), document.positionAt(found.end)) };
    }
  }
  const editor = vscode.window.activeTextEditor ?? vscode.window.visibleTextEditors[0];
  return editor === undefined ? undefined : { document: editor.document, range: editor.selection };
}
