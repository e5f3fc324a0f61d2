/** Errors of the bridge, in sentences for people. Pure. */
import type { ErrorData } from '../wire.ts';
import { count } from '../text.ts';

/** JSON-RPC and LSP codes of a request that was cancelled, by either side. */
const CANCELLED = new Set([-32800, -32802]);
/** The connection closed under the request. */
const CONNECTION_LOST = new Set([-32097, -32099, -32096]);
const LOST_WORDS = /connection got disposed|connection is closed|not running/i;

/** Said when the bridge process went away under a request. */
export const BRIDGE_LOST = 'The connection to modeld was restarted. Send the message again.';
/** Said when a turn is asked for before the bridge runs. */
export const BRIDGE_AWAY = 'The bridge to modeld is not running yet. Send the message again in a moment.';

/** An error of the bridge, ready to be shown. */
export class Failure extends Error {
  /** A kind of the error table, `cancelled`, `connection` or `internal_error`. */
  readonly kind: string;
  readonly data: Record<string, unknown>;

  constructor(message: string, kind: string, data: Record<string, unknown> = {}) {
    super(message);
    this.name = 'ModeldError';
    this.stack = ''; // the editor's chat would show it to the user
    this.kind = kind;
    this.data = data;
  }
}

/** What a rejected request means. */
export function failureOf(error: unknown): Failure {
  if (error instanceof Failure) {
    return error;
  }
  const raw = error as { code?: unknown; message?: unknown; data?: unknown } | null;
  const code = typeof raw?.code === 'number' ? raw.code : 0;
  const message = typeof raw?.message === 'string' && raw.message ? raw.message : String(error);
  if (CANCELLED.has(code)) {
    return new Failure('cancelled', 'cancelled');
  }
  const data = typeof raw?.data === 'object' && raw.data !== null ? (raw.data as ErrorData) : undefined;
  // Only the client library's own errors are known by their words: the bridge's have a kind.
  if (CONNECTION_LOST.has(code) || (data?.kind === undefined && LOST_WORDS.test(message))) {
    return new Failure(BRIDGE_LOST, 'connection');
  }
  if (data?.kind === 'context_overflow') {
    return new Failure(overflow(message, data), data.kind, data);
  }
  return new Failure(message, data?.kind ?? 'internal_error', data);
}

/** Numbers and a way out. */
function overflow(message: string, data: Record<string, unknown>): string {
  const { context, resident, additional } = data;
  if (typeof context !== 'number' || typeof additional !== 'number') {
    return message;
  }
  const prompt = context > 0 ? (typeof resident === 'number' ? resident : 0) + additional : additional;
  return (
    `The prompt does not fit: it takes ${count(prompt)} tokens and the model's context holds ${count(context)}. ` +
    'Start a new chat, attach less, leave Agent mode, or load the model with a larger context.'
  );
}

/** Our picker is offered beside these kinds: nothing answers until something is picked. */
export function pickable(kind: string): boolean {
  return kind === 'remote_not_picked' || kind === 'no_available_model' || kind === 'no_satisfactory_model';
}

/** What starts a stopped daemon is offered beside these kinds. */
export function startable(kind: string): boolean {
  return kind === 'daemon_not_running' || kind === 'daemon_stale';
}
