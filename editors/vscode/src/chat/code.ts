/** The code under the cursor, and code put there. */
import * as path from 'node:path';
import * as vscode from 'vscode';
import type { Target } from './conversation.ts';
import { inform } from '../messages.ts';
import { fenced } from './fence.ts';

/** A piece of a document: its name for people, the text for the model, its place. */
export interface Code {
  label: string;
  text: string;
  target: Target;
  language: string;
}

/** The whole lines of the selection; without one, of `fallback`, else the cursor's line. */
export function codeAt(editor: vscode.TextEditor, fallback?: vscode.Range): Code {
  const { document, selection } = editor;
  const range = selection.isEmpty ? (fallback ?? selection) : selection;
  return codeIn(document, range);
}

/** The whole lines of a range. */
export function codeIn(document: vscode.TextDocument, range: vscode.Range): Code {
  // A selection that ends before the first character of a line does not mean that line.
  const last = range.end.character === 0 && range.end.line > range.start.line ? range.end.line - 1 : range.end.line;
  const lines = new vscode.Range(range.start.line, 0, last, document.lineAt(last).text.length);
  const name = path.posix.basename(document.uri.path) || 'untitled';
  const label = `${name}:${range.start.line + 1}${last > range.start.line ? `-${last + 1}` : ''}`;
  return {
    label,
    text: fenced(label, document.languageId, document.getText(lines)),
    target: {
      uri: document.uri.toString(),
      startLine: range.start.line,
      endLine: last,
      code: document.getText(lines),
    },
    language: document.languageId,
  };
}

/** The selection of the editor in front, if there is one. */
export function selectedCode(): Code | undefined {
  const editor = vscode.window.activeTextEditor;
  return editor === undefined || editor.selection.isEmpty ? undefined : codeAt(editor);
}

/** In place of the selection of the editor in front. */
export async function insertAtCursor(code: string): Promise<void> {
  const editor = vscode.window.activeTextEditor ?? vscode.window.visibleTextEditors[0];
  if (editor === undefined) {
    await inform('Open a file first: the code goes to its cursor.');
    return;
  }
  await editor.edit((edit) => edit.replace(editor.selection, code.replace(/\n$/, '')));
  await vscode.window.showTextDocument(editor.document, editor.viewColumn);
}
