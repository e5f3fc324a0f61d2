/** The participant `@local` of the editor's chat view. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { failureOf, pickable, startable } from '../bridge/failures.ts';
import type { Library } from '../models/library.ts';
import { Pacer, realTiming } from '../models/pacing.ts';
import { VENDOR } from '../models/provider.ts';
import { PLAIN_SYSTEM, type Message } from '../wire.ts';
import { inMarkdown } from '../plain.ts';
import { fenced } from './fence.ts';
import { promptFor, type Task } from '../commands/prompts.ts';
import { stageText } from './stages.ts';
import { ENDINGS } from '../text.ts';

/** Its id in `package.json`. */
export const PARTICIPANT = 'modeld.local';
/** Longest attached file, in characters; the daemon would refuse what does not fit with numbers. */
const REFERENCE_MOST = 100_000;

/** Registers it. */
export function registerParticipant(bridge: Bridge, library: Library, icon: vscode.IconPath): vscode.Disposable {
  const participant = vscode.chat.createChatParticipant(PARTICIPANT, (request, context, stream, token) =>
    answer(bridge, library, request, context, stream, token),
  );
  participant.iconPath = icon;
  return participant;
}

async function answer(
  bridge: Bridge,
  library: Library,
  request: vscode.ChatRequest,
  context: vscode.ChatContext,
  stream: vscode.ChatResponseStream,
  token: vscode.CancellationToken,
): Promise<vscode.ChatResult> {
  // A model of another vendor may stand in the view's picker; this participant answers with local ones alone.
  const model = request.model.vendor === VENDOR ? request.model.id : (library.held.current?.id ?? '');
  const messages: Message[] = [{ role: 'system', content: PLAIN_SYSTEM }, ...history(context), await question(request)];
  const pacer = new Pacer<'text'>((_, text) => stream.markdown(text), realTiming);
  let stage = '';
  try {
    const result = await bridge.turn(
      { model, messages, overflow: 'trim' },
      (event) => {
        if (event.type === 'text') {
          pacer.push('text', event.text);
          return;
        }
        const now = event.type === 'notice' ? event.text : stageText(event);
        if (now && now !== stage) {
          stage = now;
          stream.progress(inMarkdown(now));
        }
      },
      token,
    );
    pacer.flush();
    const metadata = { model: result.model };
    const reported = ENDINGS[result.endedBy] || inMarkdown(result.warnings.join(' '));
    return reported ? { metadata, errorDetails: { message: reported } } : { metadata };
  } catch (error) {
    pacer.flush();
    const failure = failureOf(error);
    if (failure.kind === 'cancelled' || token.isCancellationRequested) {
      return {};
    }
    if (startable(failure.kind)) {
      stream.button({ command: 'modeld.start', title: 'Start modeld' });
    } else if (pickable(failure.kind)) {
      stream.button({ command: 'modeld.pickModel', title: 'Choose Model' });
    }
    return { errorDetails: { message: inMarkdown(failure.message) } };
  }
}

/** What was said to this participant before. */
function history(context: vscode.ChatContext): Message[] {
  const messages: Message[] = [];
  for (const turn of context.history) {
    if (turn instanceof vscode.ChatRequestTurn) {
      messages.push({ role: 'user', content: promptFor((turn.command ?? '') as Task | '', turn.prompt) });
    } else if (turn instanceof vscode.ChatResponseTurn) {
      const text = turn.response
        .map((part) => (part instanceof vscode.ChatResponseMarkdownPart ? part.value.value : ''))
        .join('');
      if (text) {
        messages.push({ role: 'assistant', content: text });
      }
    }
  }
  return messages;
}

async function question(request: vscode.ChatRequest): Promise<Message> {
  // Texts that nobody named in the prompt are the editor's own instructions, made for models that have its tools.
  const named = request.references.filter(({ value, range }) => typeof value !== 'string' || range !== undefined);
  const attached = await Promise.all(named.map((reference) => referenceText(reference.value)));
  const prompt = promptFor((request.command ?? '') as Task | '', request.prompt);
  return { role: 'user', content: [prompt, ...attached.filter(Boolean)].join('\n\n') };
}

async function referenceText(value: unknown): Promise<string> {
  if (typeof value === 'string') {
    return value;
  }
  const place = value instanceof vscode.Uri ? { uri: value } : value instanceof vscode.Location ? value : undefined;
  if (place === undefined) {
    return '';
  }
  try {
    const document = await vscode.workspace.openTextDocument(place.uri);
    const text = document.getText('range' in place ? place.range : undefined).slice(0, REFERENCE_MOST);
    return fenced(vscode.workspace.asRelativePath(place.uri), document.languageId, text);
  } catch {
    return `(${vscode.workspace.asRelativePath(place.uri)} could not be read)`;
  }
}
