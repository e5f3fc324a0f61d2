/** One question and its answer on the page. */
import { pickable, startable } from '../bridge/failures.ts';
import type { Turn } from '../chat/conversation.ts';
import type { FromPanel } from '../chat/protocol.ts';
import { Answer, button } from './answer.ts';

type Post = (message: FromPanel) => void;

export class TurnView {
  readonly element: HTMLElement;
  private readonly answer: Answer;
  private readonly thoughts: HTMLDetailsElement;
  private readonly thoughtsText: HTMLElement;
  private readonly stage: HTMLElement;
  private readonly foot: HTMLElement;
  private readonly post: Post;

  constructor(turn: Turn, post: Post) {
    this.post = post;
    this.element = document.createElement('article');
    this.answer = new Answer({
      insert: (code) => post({ type: 'insert', code }),
      apply: (code) => post({ type: 'apply', code, id: turn.id }),
      copy: (code) => post({ type: 'copy', code }),
    });
    this.thoughts = document.createElement('details');
    this.thoughts.hidden = true;
    this.thoughtsText = block('thoughts');
    const summary = document.createElement('summary');
    summary.textContent = 'Thoughts';
    this.thoughts.append(summary, this.thoughtsText);
    this.stage = block('stage');
    this.stage.setAttribute('role', 'status');
    this.foot = block('foot');
    this.element.append(question(turn), this.thoughts, this.answer.element, this.stage, this.foot);
    this.update(turn);
  }

  /** More text; whatever was waited for is over. */
  append(kind: 'text' | 'reasoning', text: string): void {
    this.stage.hidden = true;
    if (kind === 'text') {
      this.answer.append(text);
    } else {
      this.thoughts.hidden = false;
      this.thoughtsText.append(text);
    }
  }

  /** Everything but the flowing text. */
  update(turn: Turn): void {
    const running = turn.state === 'running';
    this.element.setAttribute('aria-busy', String(running));
    this.element.dataset['state'] = turn.state;
    this.stage.textContent = turn.stage;
    this.stage.hidden = turn.stage === '';
    if (turn.thoughts && (!running || this.thoughtsText.textContent === '')) {
      this.thoughts.hidden = false;
      this.thoughtsText.textContent = turn.thoughts;
    }
    if (!running) {
      this.answer.set(turn.answer);
    } else if (this.answer.element.textContent === '' && turn.answer) {
      this.answer.append(turn.answer);
    }
    this.foot.replaceChildren(...this.footOf(turn));
  }

  private footOf(turn: Turn): HTMLElement[] {
    const parts = turn.notices.map((text) => line('notice', text));
    if (turn.error !== undefined) {
      const error = line('error', turn.error.text);
      error.setAttribute('role', 'alert');
      parts.push(error);
    }
    if (turn.state === 'stopped') {
      parts.push(line('notice', 'Stopped.'));
    }
    if (turn.state === 'running') {
      return parts;
    }
    const row = block('row');
    const numbers = line('numbers', [turn.model, turn.numbers].filter(Boolean).join(' · '));
    numbers.title = (turn.remarks ?? []).join('\n');
    row.append(numbers);
    const kind = turn.error?.kind ?? '';
    if (startable(kind)) {
      row.append(button('Start modeld', 'Start modeld', () => this.post({ type: 'remedy', command: 'modeld.start' })));
    } else if (kind === 'connection') {
      row.append(button('Repair', 'What to do', () => this.post({ type: 'remedy', command: 'modeld.repair' })));
    } else if (pickable(kind)) {
      row.append(button('Choose model', 'Pick what answers', () => this.post({ type: 'remedy', command: 'modeld.pickModel' })));
    }
    row.append(button('Retry', 'Ask again', () => this.post({ type: 'retry', id: turn.id })));
    return [...parts, row];
  }
}

function question(turn: Turn): HTMLElement {
  const asked = block('question');
  const heading = document.createElement('h2');
  heading.textContent = turn.question;
  asked.append(heading);
  if (turn.attachment) {
    const code = document.createElement('pre');
    code.tabIndex = 0;
    code.textContent = turn.attachment.replace(/^.*\n?`{3,}[^\n]*\n/, '').replace(/\n`{3,}$/, '');
    asked.append(code);
  }
  return asked;
}

function block(name: string): HTMLElement {
  const made = document.createElement('div');
  made.className = name;
  return made;
}

function line(name: string, text: string): HTMLElement {
  const made = document.createElement('p');
  made.className = name;
  made.textContent = text;
  return made;
}
