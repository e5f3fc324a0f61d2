/**
 * The list behind the editor's own picker, kept here so that it neither empties nor flickers while the bridge or modeld
 * is away. Pure.
 */
import type { Model, Models } from '../wire.ts';

/** The row that stands while nothing answers; never a model. */
export const NOTHING = 'none';

/** How long the last list stands after the bridge went away, in milliseconds. */
export const GRACE_MS = 60_000;

/** What survives a reload of the window. */
export interface Kept {
  models: Model[];
  picked: string;
  /** The local model that answers without a pick. */
  fallback?: string;
}

/** The last good list and what has become of its source since. */
export class HeldModels {
  private models: Model[];
  private pick: string;
  private reason = '';
  private seen = false;

  private fallback = '';

  constructor(kept: Kept | undefined, state: string) {
    this.models = (kept?.models ?? []).map((model) => resting(model, state));
    this.pick = kept?.picked ?? '';
    this.fallback = kept?.fallback ?? '';
  }

  /** The bridge reported the list. */
  learn(reported: Models): void {
    // A bridge that has not yet looked knows less than what is held; remote models need no look.
    if (!reported.complete && reported.models.every((model) => model.group === 'remote') && this.models.length > 0) {
      return;
    }
    this.seen = true;
    this.models = reported.models;
    this.pick = reported.picked;
    this.fallback = reported.default;
    this.reason = reported.reason;
  }

  /** The bridge is gone: entries, names and order stay, only the state text tells. */
  away(state: string): void {
    this.models = this.models.map((model) => resting(model, state));
  }

  /** The grace ran out and nobody can say what may be served: only the pick stays. */
  expire(reason: string): void {
    this.models = this.models
      .filter((model) => model.id === this.pick)
      .map((model) => ({ ...model, group: 'unavailable', state: 'not available', detail: reason, reason }));
    this.reason = reason;
    this.seen = true;
  }

  /** What the picker shows: what can be picked and the remembered pick; first, while nothing answers, why. */
  get listed(): Model[] {
    const rows = this.models.filter((model) => (model.selectable || model.id === this.pick) && !model.embeddingOnly);
    return this.current === undefined && this.seen ? [this.explanation, ...rows] : rows;
  }

  /** The row that says why nothing answers. */
  get explanation(): Model {
    return explanation(this.reason);
  }

  /** Every row, also those that cannot be picked; first, while nothing answers, why. */
  get all(): readonly Model[] {
    return this.current === undefined && this.seen ? [this.explanation, ...this.models] : this.models;
  }

  /** The row that is marked: the pick, or the one that says why nothing answers. */
  get marked(): string {
    return this.pick || (this.current === undefined ? NOTHING : '');
  }

  get picked(): string {
    return this.pick;
  }

  /** The user's own pick, before the bridge confirms it. */
  set picked(id: string) {
    this.pick = id;
  }

  /** The model that answers in this workspace: the pick, else the local default; a remote one is only ever picked. */
  get current(): Model | undefined {
    if (this.pick) {
      return this.find(this.pick);
    }
    const fallback = this.find(this.fallback);
    return fallback?.group === 'remote' ? undefined : fallback; // a bridge of an older version names one
  }

  get kept(): Kept {
    return { models: this.models, picked: this.pick, fallback: this.fallback };
  }

  find(id: string): Model | undefined {
    return this.models.find((model) => model.id === id);
  }
}

function resting(model: Model, state: string): Model {
  return model.group === 'remote' ? model : { ...model, state: 'restarting', detail: state, reason: state, actions: [] };
}

function explanation(reason: string): Model {
  return {
    id: NOTHING,
    name: 'No model',
    group: 'unavailable',
    state: 'not available',
    detail: reason || 'the library is empty',
    selectable: false,
    reason: reason || 'the library is empty; fetch a model, or pick a remote one',
    actions: [],
    provider: '',
    backend: '',
    format: '',
    architecture: '',
    quantization: '',
    parameters: 0,
    sizeBytes: 0,
    path: '',
    context: 0,
    contextOwn: 0,
    window: 0,
    tools: false,
    thinking: false,
    thinkingLevels: [],
    vision: false,
    fim: false,
    embeddingOnly: false,
    hasTemplate: false,
    fit: null,
    tokensPerS: 0,
  };
}
