/**
 * The list behind the editor's own picker, kept here so that it neither empties nor flickers while the bridge or modeld
 * is away. Pure.
 */
import type { Model, Models } from '../wire.ts';

/** Shown when there is no model at all; never answers. */
export const NOTHING = 'none';

/** How long the last list stands after the bridge went away, in milliseconds. */
export const GRACE_MS = 60_000;

/** What survives a reload of the window. */
export interface Kept {
  models: Model[];
  picked: string;
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
  }

  /** The bridge told the list. */
  learn(told: Models): void {
    // A bridge that has not yet looked knows less than what is held.
    if (!told.complete && told.models.length === 0 && this.models.length > 0) {
      return;
    }
    this.seen = true;
    this.models = told.models;
    this.pick = told.picked;
    this.fallback = told.default;
    this.reason = told.reason;
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

  /** What the picker shows: what can be picked and the remembered pick, else one entry that explains. */
  get listed(): Model[] {
    const rows = this.models.filter((model) => (model.selectable || model.id === this.pick) && !model.embeddingOnly);
    return rows.length === 0 && this.seen ? [explanation(this.reason)] : rows;
  }

  /** Every row, also those that cannot be picked. */
  get all(): readonly Model[] {
    return this.models;
  }

  get picked(): string {
    return this.pick;
  }

  /** The user's own pick, before the bridge confirms it. */
  set picked(id: string) {
    this.pick = id;
  }

  /** The model that answers in this workspace: the pick, else what would answer without one. */
  get current(): Model | undefined {
    return this.find(this.pick) ?? this.find(this.fallback) ?? this.models.find((model) => model.selectable);
  }

  get kept(): Kept {
    return { models: this.models, picked: this.pick };
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
    name: 'No local models',
    group: 'unavailable',
    state: 'not available',
    detail: reason || 'the library is empty',
    selectable: false,
    reason: reason || 'the library is empty; fetch a model first',
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
