/** What the chat panel and the extension tell each other. Pure. */
import type { Turn } from './conversation.ts';

/** The chip above the input. */
export interface Chip {
  name: string;
  detail: string;
  /** Whether a question can be asked now; otherwise `detail` says why not. */
  ready: boolean;
}

/** Code that would go with the next question. */
export interface Attachment {
  label: string;
}

export type ToPanel =
  | { type: 'everything'; turns: Turn[]; chip: Chip; selection: Attachment | null }
  | { type: 'turn'; turn: Turn }
  | { type: 'delta'; id: number; kind: 'text' | 'reasoning'; text: string }
  | { type: 'chip'; chip: Chip }
  | { type: 'selection'; selection: Attachment | null }
  | { type: 'focus' };

export type FromPanel =
  | { type: 'ready' }
  | { type: 'ask'; text: string; attach: boolean }
  | { type: 'stop' }
  | { type: 'retry'; id: number }
  | { type: 'clear' }
  | { type: 'pick' }
  | { type: 'insert'; code: string }
  | { type: 'apply'; code: string; id: number }
  | { type: 'copy'; code: string }
  | { type: 'remedy'; command: 'modeld.start' | 'modeld.repair' | 'modeld.pickModel' };

const KINDS = new Set(['ready', 'ask', 'stop', 'retry', 'clear', 'pick', 'insert', 'apply', 'copy', 'remedy']);
const REMEDIES = new Set(['modeld.start', 'modeld.repair', 'modeld.pickModel']);

/** A message of the panel, or undefined when it is none of ours. */
export function readMessage(raw: unknown): FromPanel | undefined {
  const message = raw as { type?: unknown; command?: unknown } | null;
  if (typeof message?.type !== 'string' || !KINDS.has(message.type)) {
    return undefined;
  }
  if (message.type === 'remedy' && !REMEDIES.has(String(message.command))) {
    return undefined;
  }
  return message as FromPanel;
}
