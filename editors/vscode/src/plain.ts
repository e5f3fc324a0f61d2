/** Text from outside, made fit for the place it is shown in, by the rules of `shared/text/shown.py`. Pure. */

/** The editor cuts longer messages itself. */
const MESSAGE_MOST = 1000;
/** What acts or has no shape: control characters, halves of characters, separators, directions, zero width, tags. */
const ACTS = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\ufff0-\ufffb]/gu;
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
/** A code span within one line, or what would make a link, an image, HTML or code. */
const CODE_OR_MARKUP = /((?<!`)(`+)(?!`).*?(?<!`)\2(?!`))|(\\*)([[\]<]|`+)/g;

/** One line in which nothing acts and which the editor makes no link and no icon of; cut where a person sees it. */
export function plain(text: string, most = MESSAGE_MOST): string {
  const line = withoutMarks(text.slice(0, most + 1).replace(ACTS, escape));
  return line.length <= most ? line : `${line.slice(0, most - 1)}…`;
}

/** The same for each line of a text of ours that has several. */
export function plainLines(text: string): string {
  return text.split('\n').map((line) => plain(line)).join('\n');
}

/** A value of the wire with each of its texts plain; what is used as an id is taken from the value itself. */
export function plainAll<T>(value: T): T {
  if (typeof value === 'string') {
    return plain(value) as T;
  }
  if (Array.isArray(value)) {
    return value.map((each: unknown) => plainAll(each)) as T;
  }
  if (typeof value === 'object' && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plainAll(each as unknown)])) as T;
  }
  return value;
}

/** One line for a place that reads Markdown: code spans stay, nothing else in it is a link, an image or HTML. */
export function inMarkdown(text: string): string {
  const line = text.slice(0, MESSAGE_MOST).replace(ACTS, escape);
  return line.replace(CODE_OR_MARKUP, (found, code: string | undefined, _run, before = '', mark: string = '') =>
    code === undefined ? `${before}${before}${[...mark].map((each) => `\\${each}`).join('')}` : found,
  );
}

/** The editor reads `[text](target)` in messages and `$(name)` in labels, and knows no escape for either in all. */
function withoutMarks(line: string): string {
  return line.replaceAll('](', '] (').replaceAll('$(', '$ (');
}

function escape(character: string): string {
  const units = Array.from({ length: character.length }, (_, at) => character.charCodeAt(at));
  return SHORT[character] ?? units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('');
}
