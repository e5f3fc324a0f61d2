/** One answer on the page: rendered piece by piece, with buttons beside its code. */
import { render, stableEnd } from './markdown.ts';

/** What the buttons beside a code block do. */
export interface CodeActions {
  insert(code: string): void;
  apply(code: string): void;
  copy(code: string): void;
}

export class Answer {
  readonly element: HTMLElement;
  private readonly stable: HTMLElement;
  private readonly tail: HTMLElement;
  private readonly actions: CodeActions;
  private text = '';
  private done = 0;

  constructor(actions: CodeActions) {
    this.actions = actions;
    this.element = document.createElement('div');
    this.element.className = 'answer';
    this.stable = document.createElement('div');
    this.tail = document.createElement('div');
    this.element.append(this.stable, this.tail);
  }

  /** More text. */
  append(text: string): void {
    this.text += text;
    const end = stableEnd(this.text);
    if (end > this.done) {
      this.stable.append(this.rendered(this.text.slice(this.done, end)));
      this.done = end;
    }
    this.tail.replaceChildren(this.rendered(this.text.slice(this.done)));
  }

  /** The whole text, as it is at the end. */
  set(text: string): void {
    if (text === this.text && this.done === text.length) {
      return;
    }
    this.text = text;
    this.done = text.length;
    this.stable.replaceChildren(this.rendered(text));
    this.tail.replaceChildren();
  }

  private rendered(text: string): DocumentFragment {
    const template = document.createElement('template');
    template.innerHTML = render(text); // markdown-it escapes every tag of the text
    for (const pre of template.content.querySelectorAll('pre')) {
      this.dress(pre);
    }
    return template.content;
  }

  private dress(pre: HTMLElement): void {
    const code = pre.textContent ?? '';
    const language = /language-(\S+)/.exec(pre.querySelector('code')?.className ?? '')?.[1] ?? '';
    const box = document.createElement('div');
    box.className = 'code';
    const bar = document.createElement('div');
    bar.className = 'bar';
    const label = document.createElement('span');
    label.textContent = language;
    bar.append(
      label,
      button('Apply', 'Show as a change of the open file', () => this.actions.apply(code)),
      button('Insert', 'Insert at the cursor', () => this.actions.insert(code)),
      button('Copy', 'Copy', () => this.actions.copy(code)),
    );
    pre.replaceWith(box);
    pre.tabIndex = 0;
    box.append(bar, pre);
  }
}

/** A plain button. */
export function button(text: string, title: string, click: () => void): HTMLButtonElement {
  const made = document.createElement('button');
  made.type = 'button';
  made.className = 'quiet';
  made.textContent = text;
  made.title = title;
  made.addEventListener('click', click);
  return made;
}
