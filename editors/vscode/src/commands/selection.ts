/** Explain, fix, document and test what is selected, or what a code action of the bridge is about. */
import * as vscode from 'vscode';
import type { ChatPanel } from '../chat/panel.ts';
import { codeIn } from '../chat/code.ts';
import { inform } from '../messages.ts';
import type { ActionCommand, ActionTarget } from '../wire.ts';
import { fixQuestion, promptFor, type Task } from './prompts.ts';

const TASKS: Readonly<Record<ActionCommand, Task>> = {
  'modeld.explain': 'explain',
  'modeld.fix': 'fix',
  'modeld.document': 'document',
  'modeld.tests': 'tests',
};

/** Registers the commands. The bridge's code actions run them with what they are about. */
export function registerSelectionCommands(panel: ChatPanel): vscode.Disposable {
  return vscode.Disposable.from(
    ...Object.entries(TASKS).map(([command, task]) =>
      vscode.commands.registerCommand(command, (target?: Partial<ActionTarget>) => ask(panel, task, target)),
    ),
  );
}

async function ask(panel: ChatPanel, task: Task, target: Partial<ActionTarget> | undefined): Promise<void> {
  const about = isTarget(target) ? await targeted(target) : await selected();
  if (about === undefined) {
    await inform('Open a file and select some code first.');
    return;
  }
  const { document, range } = about;
  const code = codeIn(document, range);
  const problems = about.problems ?? problemsIn(document.uri, range);
  const question = task === 'fix' ? fixQuestion(problems) : promptFor(task, '');
  // Tests are a new file; the other answers belong where the code stands.
  await panel.ask({ question, attachment: code.text, ...(task !== 'tests' && { target: code.target }) });
}

interface About {
  document: vscode.TextDocument;
  range: vscode.Range;
  problems?: string[];
}

/** The editor's menus hand their own first argument to a command. */
function isTarget(target: Partial<ActionTarget> | undefined): target is ActionTarget {
  return typeof target?.uri === 'string' && typeof target.startLine === 'number';
}

async function targeted(target: ActionTarget): Promise<About> {
  const document = await vscode.workspace.openTextDocument(vscode.Uri.parse(target.uri));
  const { startLine, startCharacter, endLine, endCharacter, problems } = target;
  const range = document.validateRange(new vscode.Range(startLine, startCharacter, endLine, endCharacter));
  return { document, range, ...(problems.length > 0 && { problems }) };
}

async function selected(): Promise<About | undefined> {
  const editor = vscode.window.activeTextEditor;
  return editor && { document: editor.document, range: await rangeOf(editor.document, editor.selection) };
}

/** The selection, else the symbol around the cursor, else the file. */
async function rangeOf(document: vscode.TextDocument, selection: vscode.Selection): Promise<vscode.Range> {
  if (!selection.isEmpty) {
    return selection;
  }
  const symbols = await vscode.commands.executeCommand<vscode.DocumentSymbol[] | undefined>(
    'vscode.executeDocumentSymbolProvider',
    document.uri,
  );
  return innermost(symbols ?? [], selection.active) ?? new vscode.Range(0, 0, document.lineCount - 1, 0);
}

function innermost(symbols: readonly vscode.DocumentSymbol[], position: vscode.Position): vscode.Range | undefined {
  for (const symbol of symbols) {
    if (symbol.range?.contains(position)) {
      return innermost(symbol.children, position) ?? symbol.range;
    }
  }
  return undefined;
}

function problemsIn(uri: vscode.Uri, range: vscode.Range): string[] {
  return vscode.languages
    .getDiagnostics(uri)
    .filter((diagnostic) => diagnostic.range.intersection(range) !== undefined)
    .map((diagnostic) => `line ${diagnostic.range.start.line + 1}: ${diagnostic.message}`);
}
