/** The local models in the editor's own picker and chat. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { Failure, failureOf, pickable, startable } from '../bridge/failures.ts';
import { report } from '../commands/report.ts';
import type { Model, TurnEvent, TurnParams } from '../wire.ts';
import { TokenCounts } from './counts.ts';
import { NOTHING } from './held.ts';
import { decoration, information } from './information.ts';
import type { Library } from './library.ts';
import { messagesFrom, textOf, toolsFrom } from './messages.ts';
import { Later, Pacer, realTiming } from './pacing.ts';
import { unusable } from '../picker/rows.ts';
import { ENDINGS } from '../text.ts';

type Progress = vscode.Progress<vscode.LanguageModelResponsePart>;

/** The editor's name of our group; never changes, since picks are kept under it. */
export const VENDOR = 'modeld';
/** The editor asks for the whole list at each change: what changes at once is reported once, this many milliseconds later. */
const TELL_MS = 150;

export class ModelProvider implements vscode.LanguageModelChatProvider {
  private readonly bridge: Bridge;
  private readonly library: Library;
  private readonly counts: TokenCounts;
  private readonly changed = new vscode.EventEmitter<void>();
  /** Whether the editor takes thoughts from us; learnt from its first refusal. */
  private thoughts = thinkingPart() !== undefined;
  private readonly telling = new Later(() => this.changed.fire(), realTiming, TELL_MS);
  readonly onDidChangeLanguageModelChatInformation = this.changed.event;

  constructor(bridge: Bridge, library: Library) {
    this.bridge = bridge;
    this.library = library;
    this.counts = new TokenCounts((model, text) => bridge.request('modeld/count', { model, text }), realTiming);
  }

  /** The list was never asked for. */
  announce(): void {
    this.changed.fire();
  }

  /** The list changed in something that is shown. */
  update(): void {
    this.counts.trust();
    this.telling.soon();
  }

  provideLanguageModelChatInformation(): vscode.LanguageModelChatInformation[] {
    return this.library.held.listed.map(shown);
  }

  async provideLanguageModelChatResponse(
    model: vscode.LanguageModelChatInformation,
    messages: readonly vscode.LanguageModelChatRequestMessage[],
    options: vscode.ProvideLanguageModelChatResponseOptions,
    progress: Progress,
    token: vscode.CancellationToken,
  ): Promise<void> {
    if (model.id === NOTHING) {
      throw new Failure(unusable(this.library.held.explanation), 'no_available_model');
    }
    const params: TurnParams = {
      model: model.id,
      messages: messagesFrom(messages),
      tools: toolsFrom(options.tools),
      toolChoice: options.toolMode === vscode.LanguageModelChatToolMode.Required ? 'required' : 'auto',
      options: sampling(options),
    };
    await this.answer(params, progress, token);
  }

  async provideTokenCount(
    model: vscode.LanguageModelChatInformation,
    text: string | vscode.LanguageModelChatRequestMessage,
  ): Promise<number> {
    return this.counts.count(model.id, typeof text === 'string' ? text : textOf(text));
  }

  private async answer(params: TurnParams, progress: Progress, token: vscode.CancellationToken): Promise<void> {
    const pacer = new Pacer<'text' | 'reasoning'>((kind, text) => this.report(progress, kind, text), realTiming);
    const onEvent = (event: TurnEvent): void => {
      if (event.type === 'text' || event.type === 'reasoning') {
        pacer.push(event.type, event.text);
      }
    };
    try {
      const result = await this.bridge.turn(params, onEvent, token);
      pacer.flush();
      for (const call of result.toolCalls) {
        progress.report(new vscode.LanguageModelToolCallPart(call.id, call.name, JSON.parse(call.arguments) as object));
      }
      if (result.finishReason === 'cancelled_by_other') {
        throw new Failure(`The answer was ended by ${result.by || 'another editor'}.`, 'cancelled_by_other');
      }
      if (result.finishReason === 'context_full') {
        throw new Failure('The context of the model is full. Start a new chat to go on.', 'context_full');
      }
      if (result.endedBy) {
        throw new Failure(ENDINGS[result.endedBy], result.endedBy); // as text it would become the model's own words
      }
      if (result.warnings.length > 0 && result.toolCalls.length === 0) {
        throw new Failure(result.warnings.join(' '), 'warnings');
      }
    } catch (error) {
      pacer.flush();
      const failure = failureOf(error);
      if (failure.kind === 'cancelled' || token.isCancellationRequested) {
        throw new vscode.CancellationError();
      }
      if (startable(failure.kind) || pickable(failure.kind)) {
        void report(failure); // the chat shows the sentence, and has no place for the button
      }
      throw failure;
    }
  }

  private report(progress: Progress, kind: 'text' | 'reasoning', text: string): void {
    if (kind === 'text') {
      progress.report(new vscode.LanguageModelTextPart(text));
      return;
    }
    const Thinking = thinkingPart();
    if (!this.thoughts || Thinking === undefined) {
      return;
    }
    try {
      progress.report(new Thinking(text) as vscode.LanguageModelTextPart);
    } catch {
      this.thoughts = false; // the editor knows thoughts and does not take them from every extension
    }
  }
}

/** Thoughts are newer than the interface. */
function thinkingPart(): (new (text: string) => object) | undefined {
  return (vscode as unknown as { LanguageModelThinkingPart?: new (text: string) => object }).LanguageModelThinkingPart;
}

function shown(model: Model): vscode.LanguageModelChatInformation {
  const { icon, ...rest } = decoration(model);
  return { ...information(model), ...rest, statusIcon: new vscode.ThemeIcon(icon) } as vscode.LanguageModelChatInformation;
}

/** The level of thought picked beside the model, and the few options that extensions pass. */
function sampling(options: vscode.ProvideLanguageModelChatResponseOptions): NonNullable<TurnParams['options']> {
  const chosen = (options as { modelConfiguration?: { thinking?: unknown } }).modelConfiguration?.thinking;
  const asked = options.modelOptions ?? {};
  const number = (name: string): number | undefined => {
    const value: unknown = asked[name];
    return typeof value === 'number' ? value : undefined;
  };
  const found: NonNullable<TurnParams['options']> = {};
  const temperature = number('temperature');
  const topP = number('topP') ?? number('top_p');
  const maxTokens = number('maxTokens') ?? number('max_tokens');
  if (temperature !== undefined) {
    found.temperature = temperature;
  }
  if (topP !== undefined) {
    found.topP = topP;
  }
  if (maxTokens !== undefined) {
    found.maxTokens = maxTokens;
  }
  if (typeof chosen === 'string') {
    found.thinking = chosen;
  }
  return found;
}
