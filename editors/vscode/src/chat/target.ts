/** Finds again the place a question was about. Pure. */
import type { Target } from './conversation.ts';

/** Offsets of the place in `text`, or undefined when it cannot be told any more. */
export function moved(text: string, target: Target, version: number): { start: number; end: number } | undefined {
  const start = offsetOf(text, target.startLine);
  if (version === target.version || text.startsWith(target.code, start)) {
    return { start, end: start + target.code.length };
  }
  const first = text.indexOf(target.code);
  if (!target.code.trim() || first === -1 || text.includes(target.code, first + 1)) {
    return undefined; // gone, or there more than once
  }
  return { start: first, end: first + target.code.length };
}

function offsetOf(text: string, line: number): number {
  let offset = 0;
  for (let index = 0; index < line; index += 1) {
    const newline = text.indexOf('\n', offset);
    if (newline === -1) {
      return text.length;
    }
    offset = newline + 1;
  }
  return offset;
}
