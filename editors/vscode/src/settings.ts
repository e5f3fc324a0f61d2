/** The settings of the extension, read when they are needed. */
import * as vscode from 'vscode';

/** What `package.json` contributes under `modeld`. */
export interface Settings {
  python: string;
  environment: Record<string, string>;
  inlineEnabled: boolean;
  inlineDelay: number;
  inlineLanguagesOff: string[];
  commitPrompt: string;
  statusBar: boolean;
}

/** The settings in force for `scope`. */
export function settings(scope?: vscode.ConfigurationScope): Settings {
  const read = vscode.workspace.getConfiguration('modeld', scope ?? null);
  return {
    python: read.get('python', ''),
    environment: read.get('environment', {}),
    inlineEnabled: read.get('inlineCompletion.enabled', false),
    inlineDelay: read.get('inlineCompletion.delay', 250),
    inlineLanguagesOff: read.get('inlineCompletion.disabledLanguages', []),
    commitPrompt: read.get('commitMessage.instructions', ''),
    statusBar: read.get('statusBar.enabled', true),
  };
}

/** Whether a change asks for another bridge process. */
export function needsRestart(change: vscode.ConfigurationChangeEvent): boolean {
  return change.affectsConfiguration('modeld.python') || change.affectsConfiguration('modeld.environment');
}
