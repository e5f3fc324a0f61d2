/** Code as it is put into a prompt, and brought to its place. Pure. */

/** The code in a fence longer than any inside it, under its name. */
export function fenced(label: string, language: string, code: string): string {
  const longest = Math.max(2, ...[...code.matchAll(/`+/g)].map((run) => run[0].length));
  const fence = '`'.repeat(longest + 1);
  return `${label}:\n${fence}${language}\n${code.replace(/\n$/, '')}\n${fence}`;
}

/** The code with the indentation of the place it goes to, when it came without. */
export function indentedLike(code: string, original: string): string {
  const wanted = indentation(original);
  const has = indentation(code);
  if (!wanted || has.length >= wanted.length) {
    return code;
  }
  return code
    .split('\n')
    .map((line) => (line.trim() ? wanted.slice(has.length) + line : line))
    .join('\n');
}

function indentation(code: string): string {
  return /^[ \t]*/.exec(code.split('\n').find((line) => line.trim()) ?? '')?.[0] ?? '';
}
