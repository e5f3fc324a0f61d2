/**
 * Messages, questions and progress of the editor. The only place that calls its functions: those make links (also to
 * commands) and icons of text, and names of files, of models and of other programs stand in nearly every message.
 */
import * as vscode from 'vscode';
import { plain, plainLines } from './plain.ts';

type Show = (message: string, options: vscode.MessageOptions, ...actions: string[]) => Thenable<string | undefined>;

/** Says it; gives the action that was chosen. */
export function inform(message: string, ...actions: string[]): Promise<string | undefined> {
  return shown(vscode.window.showInformationMessage, message, {}, actions);
}

/** Says what is wrong and is no error. */
export function warn(message: string, ...actions: string[]): Promise<string | undefined> {
  return shown(vscode.window.showWarningMessage, message, {}, actions);
}

/** Says what failed. */
export function complain(message: string, ...actions: string[]): Promise<string | undefined> {
  return shown(vscode.window.showErrorMessage, message, {}, actions);
}

/** Asks before something is done, over everything else. */
export function confirm(message: string, detail: string, ...actions: string[]): Promise<string | undefined> {
  return shown(vscode.window.showWarningMessage, message, modal(detail), actions);
}

/** Tells something at length, over everything else. */
export function explain(message: string, detail: string, ...actions: string[]): Promise<string | undefined> {
  return shown(vscode.window.showInformationMessage, message, modal(detail), actions);
}

/** A word on the status bar that goes by itself. */
export function flash(text: string, milliseconds = 5000): void {
  void vscode.window.setStatusBarMessage(plain(text), milliseconds);
}

/** Work that is shown while it runs. */
export function during<R>(
  options: vscode.ProgressOptions,
  work: (report: (message: string, increment?: number) => void, token: vscode.CancellationToken) => Thenable<R>,
): Thenable<R> {
  const named = options.title === undefined ? options : { ...options, title: plain(options.title) };
  return vscode.window.withProgress(named, (progress, token) =>
    work((message, increment) => progress.report({ message: plain(message), ...(increment !== undefined && { increment }) }), token),
  );
}

function modal(detail: string): vscode.MessageOptions {
  return { modal: true, detail: plainLines(detail) };
}

async function shown(
  show: Show,
  message: string,
  options: vscode.MessageOptions,
  actions: readonly string[],
): Promise<string | undefined> {
  const labels = actions.map((action) => plain(action));
  const chosen = await show(plain(message), options, ...labels);
  return chosen === undefined ? undefined : actions[labels.indexOf(chosen)];
}
