/** The switch question: asked by the bridge when another editor uses the model that would have to go. */
import type * as vscode from 'vscode';
import { confirm } from '../messages.ts';
import type { Question, Reply } from '../wire.ts';

/** The user's answer, or none when it was dismissed. A question that is withdrawn cannot be taken off the screen:
 * its answer counts for nothing then. */
export async function askUser(question: Question, token: vscode.CancellationToken): Promise<Reply> {
  const withdrawn = new Promise<undefined>((resolve) => token.onCancellationRequested(() => resolve(undefined)));
  // The modal has a Cancel button of its own, so the declining answer is not repeated.
  const choices = question.answers.filter((answer) => answer.kind !== 'reject_once');
  const decline = question.answers.find((answer) => answer.kind === 'reject_once');
  const asked = confirm(`Switch to ${question.wanted}?`, question.title, ...choices.map((answer) => answer.name));
  const chosen = await Promise.race([asked, withdrawn]);
  return { answer: choices.find((answer) => answer.name === chosen)?.id ?? decline?.id ?? null };
}
