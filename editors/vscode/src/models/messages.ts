/** The editor's messages in the words of the bridge. Pure: parts are distinguished by their shape. */
import type { Message, MessagePart, Tool } from '../wire.ts';

/** `LanguageModelChatMessageRole`; the system role is newer than the interface. */
const ASSISTANT = 2;
const SYSTEM = 3;

/** `LanguageModelChatRequestMessage`, as far as it matters here. */
export interface EditorMessage {
  readonly role: number;
  readonly content: readonly unknown[];
}

/** `LanguageModelChatTool`. */
export interface EditorTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema?: object | undefined;
}

/** Every message with something in it, in order. */
export function messagesFrom(messages: readonly EditorMessage[]): Message[] {
  return messages
    .map((message) => ({ role: roleOf(message.role), content: partsFrom(message) }))
    .filter((message) => message.content.length > 0);
}

/** The tools of a request. */
export function toolsFrom(tools: readonly EditorTool[] | undefined): Tool[] {
  return (tools ?? []).map((tool) => ({
    name: tool.name,
    description: tool.description,
    inputSchema: (tool.inputSchema ?? { type: 'object', properties: {} }) as Record<string, unknown>,
  }));
}

/** All that a tokenizer would see of one message. */
export function textOf(message: EditorMessage): string {
  return partsFrom(message)
    .map((part) => {
      switch (part.type) {
        case 'text':
        case 'reasoning':
        case 'tool_result':
          return part.text;
        case 'tool_call':
          return `${part.name} ${JSON.stringify(part.input)}`;
        case 'image':
          return '';
      }
    })
    .filter(Boolean)
    .join('\n');
}

function roleOf(role: number): Message['role'] {
  if (role === SYSTEM) {
    return 'system';
  }
  return role === ASSISTANT ? 'assistant' : 'user';
}

function partsFrom(message: EditorMessage): MessagePart[] {
  const parts: MessagePart[] = [];
  for (const part of message.content) {
    const found = partFrom(part, message.role === ASSISTANT);
    if (found !== undefined) {
      parts.push(found);
    }
  }
  return parts;
}

function partFrom(part: unknown, assistant: boolean): MessagePart | undefined {
  if (typeof part === 'string') {
    return part ? { type: 'text', text: part } : undefined;
  }
  if (typeof part !== 'object' || part === null) {
    return undefined;
  }
  const fields = part as Record<string, unknown>;
  if (typeof fields['callId'] === 'string') {
    return 'content' in fields
      ? { type: 'tool_result', id: fields['callId'], text: resultText(fields['content']) }
      : callFrom(fields['callId'], fields);
  }
  if (fields['data'] instanceof Uint8Array) {
    return dataFrom(fields['data'], String(fields['mimeType'] ?? ''));
  }
  return valueFrom(fields, assistant);
}

function callFrom(id: string, fields: Record<string, unknown>): MessagePart {
  return { type: 'tool_call', id, name: String(fields['name'] ?? ''), input: (fields['input'] ?? {}) as Record<string, unknown> };
}

function dataFrom(data: Uint8Array, mimeType: string): MessagePart | undefined {
  if (mimeType.startsWith('image/')) {
    return { type: 'image', mimeType, data: Buffer.from(data).toString('base64') };
  }
  // Marks of other vendors (cache control and the like) are not for the model.
  if (mimeType.startsWith('text/') || mimeType === 'application/json') {
    const text = Buffer.from(data).toString('utf8');
    return text ? { type: 'text', text } : undefined;
  }
  return undefined;
}

function valueFrom(fields: Record<string, unknown>, assistant: boolean): MessagePart | undefined {
  const value = fields['value'];
  const text = Array.isArray(value) ? value.join('') : value;
  if (typeof text !== 'string') {
    return value === undefined ? undefined : { type: 'text', text: JSON.stringify(value) };
  }
  if (!text) {
    return undefined;
  }
  // A thought carries an id or metadata beside its value; a text part does not.
  const thought = assistant && ('id' in fields || 'metadata' in fields);
  return { type: thought ? 'reasoning' : 'text', text };
}

function resultText(content: unknown): string {
  const parts = Array.isArray(content) ? content : [content];
  return parts
    .map((part) => {
      const found = partFrom(part, false);
      if (found?.type === 'text') {
        return found.text;
      }
      return found?.type === 'image' ? '(an image)' : '';
    })
    .filter(Boolean)
    .join('\n');
}
