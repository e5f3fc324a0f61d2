/** Markdown of an answer, safe and as it comes. Pure. */
import MarkdownIt from 'markdown-it';

const markdown = new MarkdownIt({ html: false, linkify: false, breaks: false, typographer: false });
// An image would be a request to the outside, at the word of a model; its text is shown instead.
markdown.disable('image');
markdown.validateLink = (link) => /^https?:\/\//i.test(link);

/** HTML of the text; tags in it are shown, not used. */
export function render(text: string): string {
  return markdown.render(text);
}

/**
 * Where the part ends that more text cannot change: after the last blank line outside a fence. What stands before it
 * is rendered once, so that a long answer does not cost more with each piece.
 */
export function stableEnd(text: string): number {
  let fence = '';
  let end = 0;
  let start = 0;
  while (start < text.length) {
    const newline = text.indexOf('\n', start);
    if (newline === -1) {
      break;
    }
    const line = text.slice(start, newline);
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? '';
    if (!fence && mark) {
      fence = mark;
    } else if (fence && mark.startsWith(fence) && line.trim() === mark) {
      fence = '';
    }
    const next = newline + 1;
    const follows = text[next];
    // A list or an indented line may go on after a blank line.
    if (!fence && line.trim() === '' && follows !== undefined && /[^\s\-*+\d>|]/.test(follows)) {
      end = next;
    }
    start = next;
  }
  return end;
}
