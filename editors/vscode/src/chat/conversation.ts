/** The conversation of the chat panel: what was said, what runs, and what the model is sent. Pure. */
import { PLAIN_SYSTEM, type Message, type TurnEvent, type TurnResult } from '../wire.ts';
import { plain, plainAll } from '../plain.ts';
import { count, seconds } from '../text.ts';
import { stageText } from './stages.ts';

/** Where code of an answer belongs. Lines from 0. Kept over a reload: nothing in it counts within one life alone. */
export interface Target {
  uri: string;
  startLine: number;
  endLine: number;
  /** The whole lines that stood there: by them the place is found again. */
  code: string;
}

export type TurnState = 'running' | 'done' | 'stopped' | 'failed';

/** One question and its answer. */
export interface Turn {
  id: number;
  /** What the user sees of the question. */
  question: string;
  /** Code that goes with it, fenced, as the model gets it; "" when there is none. */
  attachment: string;
  target?: Target;
  answer: string;
  thoughts: string;
  state: TurnState;
  /** What happens now, for people; "" once text flows. */
  stage: string;
  /** The model that answers. */
  model: string;
  /** Said by the bridge beside the answer. */
  notices: string[];
  /** What went wrong, and its kind in the error table. */
  error?: { text: string; kind: string };
  /** Counts and speed, once it has ended. */
  numbers: string;
  /** What the model or the engine is not made for, for those who ask. */
  remarks: string[];
}

export class Conversation {
  turns: Turn[];
  private last: number;

  constructor(turns: readonly Turn[] = []) {
    // A turn that ran when the window went away runs no more.
    this.turns = turns.map((turn) => (turn.state === 'running' ? { ...turn, state: 'stopped', stage: '' } : turn));
    this.last = Math.max(0, ...turns.map((turn) => turn.id));
  }

  get running(): Turn | undefined {
    return this.turns.find((turn) => turn.state === 'running');
  }

  /** A new question at the end. */
  ask(question: string, model: string, attachment = '', target?: Target): Turn {
    this.last += 1;
    const turn: Turn = {
      id: this.last,
      question,
      attachment,
      answer: '',
      thoughts: '',
      state: 'running',
      stage: 'Waiting for modeld',
      model,
      notices: [],
      numbers: '',
      remarks: [],
      ...(target !== undefined && { target }),
    };
    this.turns.push(turn);
    return turn;
  }

  /** The same question again, in place of its answer and everything after it. */
  retry(id: number, model: string): Turn | undefined {
    const index = this.turns.findIndex((turn) => turn.id === id);
    const old = this.turns[index];
    if (old === undefined || old.state === 'running') {
      return undefined;
    }
    this.turns = this.turns.slice(0, index);
    return this.ask(old.question, model, old.attachment, old.target);
  }

  /** Everything is forgotten. */
  clear(): void {
    this.turns = [];
  }

  /** What the model gets for the last turn: the whole history, answers word for word, thoughts left out. */
  messages(): Message[] {
    const messages: Message[] = [{ role: 'system', content: PLAIN_SYSTEM }];
    for (const turn of this.turns) {
      if (turn.state === 'failed' && !turn.answer) {
        continue; // never answered: asking it again beside the next question would only confuse
      }
      const content = turn.attachment ? `${turn.question}\n\n${turn.attachment}` : turn.question;
      messages.push({ role: 'user', content });
      if (turn.answer) {
        messages.push({ role: 'assistant', content: turn.answer });
      }
    }
    return messages;
  }
}

/** One event of a running turn. True when something other than the flowing text changed; text ends the stage by itself. */
export function apply(turn: Turn, event: TurnEvent): boolean {
  switch (event.type) {
    case 'text':
      turn.answer += event.text;
      turn.stage = '';
      return false;
    case 'reasoning':
      turn.thoughts += event.text;
      turn.stage = '';
      return false;
    case 'notice':
      turn.notices.push(plain(event.text));
      return true;
    case 'tool_call':
      return false;
    default: {
      const stage = plain(stageText(event));
      const changed = stage !== turn.stage;
      turn.stage = stage;
      return changed;
    }
  }
}

/** The turn ended in order. */
export function finish(turn: Turn, result: TurnResult): void {
  turn.stage = '';
  turn.model = plain(result.model) || turn.model;
  turn.state = result.finishReason === 'cancelled' ? 'stopped' : 'done';
  turn.remarks = plainAll(result.warnings);
  if (result.finishReason === 'cancelled_by_other') {
    turn.state = 'stopped';
    turn.notices.push(plain(`Ended by ${result.by || 'another editor'}.`));
  }
  if (result.finishReason === 'context_full') {
    turn.notices.push('The context of the model is full; start a new chat to go on.');
  }
  turn.numbers = numbers(result);
}

/** The turn failed. */
export function fail(turn: Turn, text: string, kind: string): void {
  turn.stage = '';
  turn.state = kind === 'cancelled' ? 'stopped' : 'failed';
  if (turn.state === 'failed') {
    turn.error = { text: plain(text), kind };
  }
}

function numbers(result: TurnResult): string {
  const { usage, timings } = result;
  const facts = [
    usage.generated ? `${count(usage.generated)} tokens` : '',
    timings.tokensPerS ? `${timings.tokensPerS.toFixed(1)} tokens/s` : '',
    timings.firstTokenS ? `first after ${seconds(timings.firstTokenS)}` : '',
    usage.reused ? `${count(usage.reused)} of ${count(usage.reused + usage.prefilled)} prompt tokens were warm` : '',
  ];
  return facts.filter(Boolean).join(' · ');
}
