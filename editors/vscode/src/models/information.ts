/** What the editor's picker shows about a model. Pure: icons are names, the shell makes them. */
import type { Model } from '../wire.ts';
import { NOTHING } from './held.ts';
import { plainAll } from '../plain.ts';
import { count, size } from '../text.ts';

/** Tokens that an Agent-mode request takes before the user has said a word (39 tools and their rules, measured). */
export const AGENT_TOKENS = 16_000;
/** Where nothing is known of a model's window. */
const UNKNOWN_WINDOW = 4096;
/** Part of the window kept for the answer, and its bound in tokens. */
const ANSWER_PART = 4;
const ANSWER_MOST = 4096;

/** The stable part of the editor's interface. */
export interface Information {
  id: string;
  name: string;
  family: string;
  version: string;
  detail: string;
  tooltip: string;
  maxInputTokens: number;
  maxOutputTokens: number;
  capabilities: { toolCalling: boolean; imageInput: boolean };
}

/** Fields that the editor shows although its interface does not name them: never the only carrier of a fact. */
export interface Decoration {
  isUserSelectable: boolean;
  icon: string;
  warningText: string[];
  configurationSchema?: object;
}

/** `id` and `name` depend on the model alone; everything that moves with its state stands in `detail` and `tooltip`. */
export function information(row: Model): Information {
  const model = { ...plainAll(row), id: row.id };
  const window = model.window || model.contextOwn || UNKNOWN_WINDOW;
  const answer = Math.min(Math.floor(window / ANSWER_PART), ANSWER_MOST);
  return {
    id: model.id,
    name: model.name,
    family: model.architecture || 'local',
    version: model.quantization || '1',
    detail: brief(model),
    tooltip: tooltip(model),
    maxInputTokens: window - answer,
    maxOutputTokens: answer,
    // The explaining entry is no model; Agent mode, the editor's default, would hide it without this.
    capabilities: { toolCalling: model.tools || model.id === NOTHING, imageInput: model.vision },
  };
}

/** The one place that knows the undocumented fields. */
export function decoration(row: Model): Decoration {
  const model = { ...plainAll(row), id: row.id, thinkingLevels: row.thinkingLevels };
  const levels = model.thinkingLevels;
  return {
    isUserSelectable: true,
    icon: icon(model),
    warningText: warnings(model),
    ...(levels.length > 1 && {
      configurationSchema: {
        type: 'object',
        properties: {
          thinking: { type: 'string', title: 'Thinking', enum: levels, default: levels[0] },
        },
      },
    }),
  };
}

/** What should be known before the model is picked. */
export function warnings(model: Model): string[] {
  const found: string[] = [];
  const loaded = model.context > 0;
  if (!loaded && model.fit !== null && (model.fit.verdict === 'too_big' || model.fit.verdict === 'fits_smaller')) {
    found.push(model.fit.text);
  }
  if (model.tools && model.window > 0 && model.window < AGENT_TOKENS) {
    found.push(
      `Too small for Agent mode: its instructions take about ${count(AGENT_TOKENS)} tokens, this context holds ` +
        `${count(model.window)}. Use Ask mode, the modeld chat, or load the model with a larger context.`,
    );
  }
  if (model.reason && !model.selectable) {
    found.push(model.reason);
  }
  return found;
}

/** State and size: a longer line would leave no room for the name. */
function brief(model: Model): string {
  return model.detail.replace(/, context [\d,]+.*$/, '');
}

function icon(model: Model): string {
  switch (model.state) {
    case 'loaded':
      return 'pass-filled';
    case 'active':
    case 'queued':
      return 'play-circle';
    case 'loading':
    case 'unloading':
      return 'sync';
    case 'restarting':
      return 'debug-disconnect';
    case 'remote':
      return 'cloud';
    case 'rejected':
    case 'not servable':
    case 'not available':
      return 'error';
    case 'not loaded':
      return model.fit?.verdict === 'too_big' ? 'warning' : 'circle-outline';
  }
}

function tooltip(model: Model): string {
  if (model.id === NOTHING) {
    return model.reason;
  }
  const lines = [`${model.name}: ${model.detail}`];
  const facts = [model.architecture, model.quantization, model.sizeBytes ? size(model.sizeBytes) : '', model.provider];
  lines.push(facts.filter(Boolean).join(', '));
  if (model.context > 0) {
    lines.push(`context ${count(model.context)} tokens`);
  } else if (model.window > 0) {
    lines.push(`context ${count(model.window)} tokens when loaded`);
  }
  if (!model.tools && model.selectable) {
    lines.push("Its chat template has no tools, so it answers in Ask mode and not in Agent mode.");
  }
  return [...lines, ...warnings(model)].filter(Boolean).join('\n');
}
