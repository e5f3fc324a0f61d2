/** The editor's messages in the bridge's words. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messagesFrom, textOf, toolsFrom } from '../../src/models/messages.ts';

const text = (value: string): object => ({ value });

test('roles and text', () => {
  const messages = messagesFrom([
    { role: 3, content: [text('rules')] },
    { role: 1, content: [text('hello '), text('there')] },
    { role: 2, content: [text('hi')] },
  ]);
  assert.deepEqual(messages, [
    { role: 'system', content: [{ type: 'text', text: 'rules' }] },
    { role: 'user', content: [{ type: 'text', text: 'hello ' }, { type: 'text', text: 'there' }] },
    { role: 'assistant', content: [{ type: 'text', text: 'hi' }] },
  ]);
});

test('tool calls and results go both ways, with their ids and whole inputs', () => {
  const messages = messagesFrom([
    { role: 2, content: [{ callId: 'c1', name: 'read', input: { path: 'a', lines: [1, 2] } }] },
    { role: 1, content: [{ callId: 'c1', content: [text('first'), text('second'), { value: { kind: 'tsx' } }] }] },
  ]);
  assert.deepEqual(messages, [
    { role: 'assistant', content: [{ type: 'tool_call', id: 'c1', name: 'read', input: { path: 'a', lines: [1, 2] } }] },
    { role: 'user', content: [{ type: 'tool_result', id: 'c1', text: 'first\nsecond\n{"kind":"tsx"}' }] },
  ]);
});

test('images are passed on, marks of other vendors are not', () => {
  const [message] = messagesFrom([
    {
      role: 1,
      content: [
        { mimeType: 'image/png', data: new Uint8Array([1, 2, 3]) },
        { mimeType: 'cache_control', data: new Uint8Array([101]) },
      ],
    },
  ]);
  assert.deepEqual(message?.content, [{ type: 'image', mimeType: 'image/png', data: 'AQID' }]);
});

test('thoughts of an answer are distinguished from its text', () => {
  const [message] = messagesFrom([{ role: 2, content: [{ value: 'hmm', id: 't1', metadata: undefined }, text('so')] }]);
  assert.deepEqual(message?.content, [
    { type: 'reasoning', text: 'hmm' },
    { type: 'text', text: 'so' },
  ]);
});

test('what has no content is no message, and unknown parts break nothing', () => {
  assert.deepEqual(messagesFrom([{ role: 1, content: [] }, { role: 1, content: [text(''), null, 7, {}] }]), []);
});

test('the same history gives the same messages, so that its warm context is found again', () => {
  const history = [{ role: 1, content: [text('q')] }, { role: 2, content: [text('a')] }];
  const longer = [...history, { role: 1, content: [text('next')] }];
  assert.deepEqual(messagesFrom(longer).slice(0, 2), messagesFrom(history));
});

test('a tool without a schema takes an object', () => {
  assert.deepEqual(toolsFrom([{ name: 'now', description: 'the time' }]), [
    { name: 'now', description: 'the time', inputSchema: { type: 'object', properties: {} } },
  ]);
  assert.deepEqual(toolsFrom(undefined), []);
});

test('a token count sees calls and results too', () => {
  const counted = textOf({ role: 2, content: [text('a'), { callId: 'c', name: 'run', input: { x: 1 } }] });
  assert.equal(counted, 'a\nrun {"x":1}');
});
