/** A commit message from what is staged. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { failureOf } from '../bridge/failures.ts';
import { during, inform } from '../messages.ts';
import type { Library } from '../models/library.ts';
import { Pacer, realTiming } from '../models/pacing.ts';
import { settings } from '../settings.ts';
import { commitPrompt, tidyCommit } from './prompts.ts';
import { report } from './report.ts';

/** Subjects of earlier commits that show the style. */
const RECENT = 5;
const ANSWER_TOKENS = 300;

/** The Git extension's interface, as far as it is used. */
interface GitApi {
  repositories: Repository[];
}
interface Repository {
  rootUri: vscode.Uri;
  inputBox: { value: string };
  diff(cached?: boolean): Promise<string>;
  log(options: { maxEntries: number }): Promise<{ message: string }[]>;
}

/** Registers the command. */
export function registerCommitCommand(bridge: Bridge, library: Library): vscode.Disposable {
  return vscode.commands.registerCommand('modeld.commitMessage', async (control?: vscode.SourceControl) => {
    const repository = await repositoryOf(control?.rootUri);
    if (repository === undefined) {
      await inform('There is no Git repository in this window.');
      return;
    }
    const diff = await repository.diff(true);
    if (!diff.trim()) {
      await inform('Nothing is staged: stage the changes that the message is for.');
      return;
    }
    await during(
      { location: vscode.ProgressLocation.SourceControl, title: 'Writing a commit message', cancellable: true },
      (_, token) => write(bridge, library, repository, diff, token),
    );
  });
}

async function write(
  bridge: Bridge,
  library: Library,
  repository: Repository,
  diff: string,
  token: vscode.CancellationToken,
): Promise<void> {
  const before = repository.inputBox.value;
  const { system, user } = commitPrompt(diff, settings(repository.rootUri).commitPrompt, await recent(repository));
  let text = '';
  const pacer = new Pacer<'text'>((_, more) => {
    text += more;
    repository.inputBox.value = tidyCommit(text);
  }, realTiming);
  try {
    const result = await bridge.turn(
      {
        model: library.held.current?.id ?? '',
        messages: [
          { role: 'system', content: system },
          { role: 'user', content: user },
        ],
        options: { maxTokens: ANSWER_TOKENS, temperature: 0.2 },
      },
      (event) => {
        if (event.type === 'text') {
          pacer.push('text', event.text);
        }
      },
      token,
    );
    pacer.flush();
    if (!tidyCommit(text)) {
      repository.inputBox.value = before;
      await inform(`${result.model} wrote nothing. Try again, or choose another model.`);
    }
  } catch (error) {
    pacer.flush();
    if (!tidyCommit(text) || token.isCancellationRequested) {
      repository.inputBox.value = before; // what the user had written is never lost
    }
    await report(failureOf(error));
  }
}

async function recent(repository: Repository): Promise<string[]> {
  try {
    const commits = await repository.log({ maxEntries: RECENT });
    return commits.map((commit) => commit.message.split('\n')[0] ?? '').filter(Boolean);
  } catch {
    return []; // a repository without a commit has no log
  }
}

async function repositoryOf(root: vscode.Uri | undefined): Promise<Repository | undefined> {
  const extension = vscode.extensions.getExtension<{ getAPI(version: 1): GitApi }>('vscode.git');
  if (extension === undefined) {
    return undefined;
  }
  const { repositories } = (await extension.activate()).getAPI(1);
  const wanted = root?.toString();
  const active = vscode.window.activeTextEditor?.document.uri.path ?? '';
  return (
    repositories.find((repository) => repository.rootUri.toString() === wanted) ??
    repositories.find((repository) => active.startsWith(`${repository.rootUri.path}/`)) ??
    repositories[0]
  );
}
