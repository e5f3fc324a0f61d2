/** Explain, fix, document and test what is selected; also as code actions on what the editor complains about. */
import * as vscode from 'vscode';
import type { ChatPanel } from '../chat/panel.ts';
import { codeIn } from '../chat/code.ts';
import { fixQuestion, promptFor, type Task } from './prompts.ts';

/** Registers the commands and the code actions. */
export function registerSelectionCommands(panel: ChatPanel): vscode.Disposable {
  const ask = (task: Task) => async (): Promise<void> => {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined) {
      await vscode.window.showInformationMessage('Open a file and select some code first.');
      return;
    }
    const range = await rangeOf(editor.document, editor.selection);
    await askAbout(panel, task, editor.document, range);
  };
  const fixAt = async (uri: vscode.Uri, range: vscode.Range): Promise<void> => {
    const document = await vscode.workspace.openTextDocument(uri);
    await askAbout(panel, 'fix', document, range);
  };
  return vscode.Disposable.from(
    vscode.commands.registerCommand('modeld.explain', ask('explain')),
    vscode.commands.registerCommand('modeld.fix', ask('fix')),
    vscode.commands.registerCommand('modeld.document', ask('document')),
    vscode.commands.registerCommand('modeld.tests', ask('tests')),
    vscode.commands.registerCommand('modeld.fixAt', fixAt),
    vscode.languages.registerCodeActionsProvider(
      [{ scheme: 'file' }, { scheme: 'untitled' }],
      { provideCodeActions },
      { providedCodeActionKinds: [vscode.CodeActionKind.QuickFix] },
    ),
  );
}

async function askAbout(panel: ChatPanel, task: Task, document: vscode.TextDocument, range: vscode.Range): Promise<void> {
  const code = codeIn(document, range);
  const problems = task === 'fix' ? problemsIn(document.uri, range) : [];
  const question = task === 'fix' ? fixQuestion(problems) : promptFor(task, '');
  // Tests are a new file; the other answers belong where the code stands.
  await panel.ask({ question, attachment: code.text, ...(task !== 'tests' && { target: code.target }) });
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

function provideCodeActions(
  document: vscode.TextDocument,
  range: vscode.Range | vscode.Selection,
  context: vscode.CodeActionContext,
): vscode.CodeAction[] {
  const worth = context.diagnostics.filter((diagnostic) => diagnostic.severity <= vscode.DiagnosticSeverity.Warning);
  if (worth.length === 0) {
    return [];
  }
  const action = new vscode.CodeAction('Fix with the local model', vscode.CodeActionKind.QuickFix);
  action.diagnostics = worth;
  const whole = worth.reduce<vscode.Range>((all, diagnostic) => all.union(diagnostic.range), range);
  action.command = { command: 'modeld.fixAt', title: action.title, arguments: [document.uri, whole] };
  return [action];
}
