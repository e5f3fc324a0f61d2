/** Finds again the place a question was about, by the code that stood there and by nothing else. Pure. */
import type { Target } from './conversation.ts';

/** Offsets of the place in the text of a document. */
export interface Place {
  start: number;
  end: number;
}

/** Where the lines of the question stand now: where they stood, else at the only place that has them. */
export function placeIn(text: string, target: Target): Place | 'gone' | 'several' {
  const lines = linesOf(text);
  const wanted = target.code.split(LINE_END);
  if (standsAt(lines, wanted, target.startLine)) {
    return placeAt(lines, wanted, target.startLine);
  }
  if (!target.code.trim()) {
    return 'gone'; // empty lines are everywhere
  }
  const found: number[] = [];
  for (let first = 0; first < lines.length && found.length < 2; first += 1) {
    if (standsAt(lines, wanted, first)) {
      found.push(first);
    }
  }
  const [only] = found;
  return only === undefined ? 'gone' : found.length > 1 ? 'several' : placeAt(lines, wanted, only);
}

/** Why a place was not found, and what to do. */
export function lostText(file: string, lost: 'gone' | 'several' | 'unreadable'): string {
  switch (lost) {
    case 'gone':
      return `The code that this answer is about is no longer in ${file}. Select where it belongs and ask again.`;
    case 'several':
      return `The code that this answer is about stands more than once in ${file}. Select the right place and ask again.`;
    case 'unreadable':
      return `${file} cannot be opened any more, so the code cannot be put into it.`;
  }
}

/** As the editor counts lines; the code may come from a time when the file had other line ends. */
const LINE_END = /\r\n|\r|\n/;

interface Line extends Place {
  text: string;
}

function linesOf(text: string): Line[] {
  const lines: Line[] = [];
  let start = 0;
  for (const end of text.matchAll(new RegExp(LINE_END, 'g'))) {
    lines.push({ start, end: end.index, text: text.slice(start, end.index) });
    start = end.index + end[0].length;
  }
  return [...lines, { start, end: text.length, text: text.slice(start) }];
}

function standsAt(lines: readonly Line[], wanted: readonly string[], first: number): boolean {
  return wanted.every((line, index) => lines[first + index]?.text === line);
}

function placeAt(lines: readonly Line[], wanted: readonly string[], first: number): Place {
  return { start: lines[first]?.start ?? 0, end: lines[first + wanted.length - 1]?.end ?? 0 };
}
