/** The chat panel's page. It shows what the extension tells it and keeps nothing but the draft. */
import './style.css';
import type { Turn } from '../chat/conversation.ts';
import type { Attachment, Chip, FromPanel, ToPanel } from '../chat/protocol.ts';
import { TurnView } from './turn.ts';

/** Nearer to the end than this, in pixels, the page follows the text. */
const FOLLOW = 40;

const editor = acquireVsCodeApi<{ draft: string }>();
const post = (message: FromPanel): void => editor.postMessage(message);
const log = element<HTMLElement>('log');
const input = element<HTMLTextAreaElement>('input');
const send = element<HTMLButtonElement>('send');
const stop = element<HTMLButtonElement>('stop');
const model = element<HTMLButtonElement>('model');
const attach = element<HTMLButtonElement>('attach');
const views = new Map<number, TurnView>();
let running = false;

input.value = editor.getState()?.draft ?? '';
input.addEventListener('input', () => editor.setState({ draft: input.value }));
input.addEventListener('keydown', (key) => {
  if (key.key === 'Enter' && !key.shiftKey && !key.isComposing) {
    key.preventDefault();
    ask();
  }
});
document.addEventListener('keydown', (key) => {
  if (key.key === 'Escape' && running) {
    post({ type: 'stop' });
  }
});
element<HTMLFormElement>('ask').addEventListener('submit', (event) => {
  event.preventDefault();
  ask();
});
stop.addEventListener('click', () => post({ type: 'stop' }));
model.addEventListener('click', () => post({ type: 'pick' }));
element<HTMLButtonElement>('clear').addEventListener('click', () => post({ type: 'clear' }));
attach.addEventListener('click', () => attach.setAttribute('aria-pressed', String(!attached())));
window.addEventListener('message', (event: MessageEvent<ToPanel>) => receive(event.data));
post({ type: 'ready' });

function ask(): void {
  const text = input.value.trim();
  if (!text || running) {
    return;
  }
  post({ type: 'ask', text, attach: attached() });
  input.value = '';
  editor.setState({ draft: '' });
  attach.setAttribute('aria-pressed', 'false');
}

function receive(message: ToPanel): void {
  const follow = log.scrollHeight - log.scrollTop - log.clientHeight < FOLLOW;
  switch (message.type) {
    case 'everything':
      views.clear();
      log.replaceChildren();
      message.turns.forEach(show);
      chip(message.chip);
      selection(message.selection);
      setRunning(message.turns.some((turn) => turn.state === 'running'));
      break;
    case 'turn':
      show(message.turn);
      setRunning(message.turn.state === 'running');
      break;
    case 'delta':
      views.get(message.id)?.append(message.kind, message.text);
      break;
    case 'chip':
      chip(message.chip);
      break;
    case 'selection':
      selection(message.selection);
      break;
    case 'focus':
      input.focus();
      break;
  }
  if (follow) {
    log.scrollTop = log.scrollHeight;
  }
}

function show(turn: Turn): void {
  const known = views.get(turn.id);
  if (known !== undefined) {
    known.update(turn);
    return;
  }
  const view = new TurnView(turn, post);
  views.set(turn.id, view);
  log.append(view.element);
}

function setRunning(now: boolean): void {
  running = now;
  send.hidden = now;
  stop.hidden = !now;
}

function chip(shown: Chip): void {
  model.textContent = shown.name;
  model.title = `${shown.detail}. Click to choose another model.`;
  model.dataset['ready'] = String(shown.ready);
  model.setAttribute('aria-label', `Model: ${shown.name}, ${shown.detail}`);
}

function selection(shown: Attachment | null): void {
  attach.hidden = shown === null;
  attach.textContent = shown === null ? '' : shown.label;
  attach.title = 'Send this code with the question';
  if (shown === null) {
    attach.setAttribute('aria-pressed', 'false');
  }
}

function attached(): boolean {
  return attach.getAttribute('aria-pressed') === 'true';
}

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}
