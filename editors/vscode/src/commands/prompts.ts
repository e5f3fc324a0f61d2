/** What the commands ask the model. Pure. */
import { shortened } from '../text.ts';

export type Task = 'explain' | 'fix' | 'document' | 'tests';

const QUESTIONS: Record<Task, string> = {
  explain: 'Explain what this code does, step by step.',
  fix: 'Find the mistake in this code and give the whole corrected code in one fenced block.',
  document: 'Add documentation comments to this code, in the style of its language. Change nothing else. Give the whole code in one fenced block.',
  tests: 'Write unit tests for this code, with the usual test framework of its language. Give them in one fenced block.',
};

/** Longest diff that goes into a prompt, in characters. */
export const DIFF_MOST = 24_000;
/** Longest list of messages of the diagnostics, in characters. */
const PROBLEMS_MOST = 2000;

/** The question of a task; `more` are the user's own words. */
export function promptFor(task: Task | '', more: string): string {
  const question = task === '' ? '' : QUESTIONS[task];
  return [question, more.trim()].filter(Boolean).join(' ') || 'Hello';
}

/** The question of a fix, with what the editor complains about. */
export function fixQuestion(problems: readonly string[]): string {
  if (problems.length === 0) {
    return QUESTIONS.fix;
  }
  const list = shortened(problems.map((problem) => `- ${problem}`).join('\n'), PROBLEMS_MOST);
  return `Fix this code. The problems are:\n${list}\nGive the whole corrected code in one fenced block.`;
}

/** The system and the user message that ask for a commit message. */
export function commitPrompt(diff: string, instructions: string, recent: readonly string[]): { system: string; user: string } {
  const style = instructions.trim() || 'One line of at most 72 characters in the imperative mood; a body only if it is needed.';
  const examples = recent.length > 0 ? `\nRecent messages of this repository:\n${recent.map((line) => `- ${line}`).join('\n')}` : '';
  const cut = diff.length > DIFF_MOST;
  const shown = cut ? `${diff.slice(0, DIFF_MOST)}\n(the rest of the change is left out)` : diff;
  return {
    system: 'You write Git commit messages. Answer with the message alone, without quotes or fences.',
    user: `Write the commit message for this staged change. ${style}${examples}\n\n${shown}`,
  };
}

/** The message without what models like to put around it. */
export function tidyCommit(text: string): string {
  const inner = /^\s*(`{3,})[^\n]*\n([\s\S]*?)\n?\1\s*$/.exec(text)?.[2] ?? text;
  const plain = inner.trim().replace(/^(?:commit message|message)\s*:\s*/i, '');
  return /^"[^"]*"$/.test(plain) ? plain.slice(1, -1) : plain;
}
