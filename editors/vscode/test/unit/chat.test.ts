/** The panel's conversation, its page, its Markdown, and where code goes. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TurnResult } from '../../src/wire.ts';
import { apply, Conversation, fail, finish, type Target } from '../../src/chat/conversation.ts';
import { fenced, indentedLike } from '../../src/chat/fence.ts';
import { page } from '../../src/chat/html.ts';
import { readMessage } from '../../src/chat/protocol.ts';
import { lostText, placeIn } from '../../src/chat/target.ts';
import { render, stableEnd } from '../../src/webview/markdown.ts';
import { ENDINGS } from '../../src/text.ts';

const result: TurnResult = {
  finishReason: 'stop',
  model: 'qwen',
  usage: { reused: 100, prefilled: 10, generated: 20 },
  timings: { queuedS: 0, loadS: 0, prefillS: 0.1, firstTokenS: 0.2, decodeS: 1, tokensPerS: 20, threads: 2 },
  context: 8192,
  toolCalls: [],
  text: '',
  reasoning: '',
  by: '',
  warnings: [],
  leftOut: 0,
  endedBy: '',
};

test('an answer that became a loop is reported beside it and stays the answer', () => {
  const talk = new Conversation();
  const looped = talk.ask('hi', 'qwen');
  apply(looped, { type: 'text', text: 'round and round' });
  apply(looped, { type: 'notice', text: ENDINGS.repetition });
  finish(looped, { ...result, finishReason: 'length', endedBy: 'repetition' });
  assert.deepEqual([looped.state, looped.notices, looped.answer], ['done', [ENDINGS.repetition], 'round and round']);
  assert.deepEqual(talk.messages().at(-1), { role: 'assistant', content: 'round and round' });
});

test('the next question repeats the history word for word, without thoughts', () => {
  const talk = new Conversation();
  const first = talk.ask('one', 'qwen');
  apply(first, { type: 'reasoning', text: 'hmm' });
  apply(first, { type: 'text', text: 'an ' });
  apply(first, { type: 'text', text: 'answer' });
  finish(first, result);
  const before = talk.messages();
  talk.ask('two', 'qwen', 'code:\n```\nx\n```');
  const after = talk.messages();
  assert.deepEqual(after.slice(0, before.length), before);
  assert.deepEqual(before.at(-1), { role: 'assistant', content: 'an answer' });
  assert.equal(after.at(-1)?.content, 'two\n\ncode:\n```\nx\n```');
});

test('a stopped answer stays in the history as far as it came; one that failed does not', () => {
  const talk = new Conversation();
  const stopped = talk.ask('one', 'qwen');
  apply(stopped, { type: 'text', text: 'half' });
  finish(stopped, { ...result, finishReason: 'cancelled' });
  assert.equal(stopped.state, 'stopped');
  fail(talk.ask('two', 'qwen'), 'modeld stopped', 'daemon_not_running');
  assert.deepEqual(talk.messages().map((message) => message.content).slice(1), ['one', 'half']);
});

test('a retry asks the same again in place of what followed', () => {
  const talk = new Conversation();
  finish(talk.ask('one', 'qwen', 'code'), result);
  finish(talk.ask('two', 'qwen'), result);
  const again = talk.retry(1, 'beta');
  assert.deepEqual([again?.question, again?.attachment, again?.model], ['one', 'code', 'beta']);
  assert.equal(talk.turns.length, 1);
  assert.equal(talk.retry(again?.id ?? 0, 'beta'), undefined, 'not while it runs');
});

test('a turn that ran when the window went away is stopped, not running for ever', () => {
  const talk = new Conversation();
  talk.ask('one', 'qwen');
  const again = new Conversation(JSON.parse(JSON.stringify(talk.turns)));
  assert.equal(again.running, undefined);
  assert.equal(again.ask('two', 'qwen').id, 2);
});

test('stages are reported in words, and go when text flows', () => {
  const turn = new Conversation().ask('one', 'qwen');
  assert.ok(apply(turn, { type: 'loading', model: 'qwen', fraction: 0.42, unloads: 'beta' }));
  assert.equal(turn.stage, 'Loading qwen in place of beta, 42 %');
  assert.ok(!apply(turn, { type: 'loading', model: 'qwen', fraction: 0.42, unloads: 'beta' }));
  apply(turn, { type: 'queued', position: 2, ahead: ['Zed', 'Cursor'] });
  assert.match(turn.stage, /Place 2 in the queue, behind Zed and Cursor/);
  assert.ok(!apply(turn, { type: 'text', text: 'x' }), 'the text itself says that the stage is over');
  assert.equal(turn.stage, '');
});

test('the page allows its own two files and nothing else', () => {
  const html = page({ script: 'vscode://panel.js', style: 'vscode://panel.css', csp: 'https://csp', nonce: 'n0nce' });
  assert.match(html, /default-src 'none'; style-src https:\/\/csp; script-src 'nonce-n0nce'/);
  assert.doesNotMatch(html, /unsafe-inline|unsafe-eval|\son\w+=/);
});

test('messages that are not the panel’s are not obeyed', () => {
  assert.equal(readMessage({ type: 'remedy', command: 'workbench.action.terminal.sendSequence' }), undefined);
  assert.equal(readMessage({ type: 'eval' }), undefined);
  assert.equal(readMessage(null), undefined);
  assert.deepEqual(readMessage({ type: 'stop' }), { type: 'stop' });
});

test('Markdown of a model cannot bring tags, scripts or requests', () => {
  const html = render('<img src=x onerror=alert(1)> [a](javascript:alert(1)) ![p](https://x/y.png) [ok](https://x)');
  assert.doesNotMatch(html, /<img|<script|href="javascript/);
  assert.match(html, /href="https:\/\/x"/);
});

test('what is rendered once never changes, however the answer is cut', () => {
  const text = 'One.\n\n- a\n- b\n\nTwo `x`.\n\n```py\nif x:\n\n    y\n```\n\nThree.\n\n1. a\n\n2. b\n\nEnd';
  let last = 0;
  for (let length = 0; length <= text.length; length += 1) {
    const end = stableEnd(text.slice(0, length));
    assert.ok(end >= last, 'monotone');
    last = end;
  }
  const end = stableEnd(text);
  assert.ok(end > text.indexOf('Three'));
  const open = stableEnd('a\n\n```\ncode\n\nmore');
  assert.equal(open, 3, 'an open fence stays in the tail');
});

test('code is fenced beyond its own fences', () => {
  const code = 'text\n```\ninner\n```\n';
  assert.equal(fenced('a.md:1-4', 'markdown', code), `a.md:1-4:\n\`\`\`\`markdown\n${code}\`\`\`\``);
});

test('code goes to its place with its indentation', () => {
  assert.equal(indentedLike('if x:\n    y', '        old'), '        if x:\n            y');
  assert.equal(indentedLike('    kept', '    old'), '    kept');
});

const TARGET: Target = { uri: 'file:///a', startLine: 1, endLine: 2, code: 'def two():\n\treturn 2' };
const at = (text: string, target = TARGET): string => {
  const place = placeIn(text, target);
  return typeof place === 'string' ? place : text.slice(place.start, place.end);
};

test('the place of a question is found by its code: where it stood, else where it stands once', () => {
  assert.equal(at('one\ndef two():\n\treturn 2\n'), TARGET.code);
  assert.equal(at('# added\n# on top\none\ndef two():\n\treturn 2\n'), TARGET.code);
  assert.deepEqual(placeIn('x\ndef two():\n\treturn 2', TARGET), { start: 2, end: 22 }, 'at the end of the file');
  const twice = 'one\ndef two():\n\treturn 2\n\ndef two():\n\treturn 2\n';
  assert.deepEqual(placeIn(twice, TARGET), { start: 4, end: 24 }, 'the one that stands where it stood');
});

test('a place that is gone or stands twice is reported, whatever the version of the document is', () => {
  assert.equal(at('one\ntwo\nthree\nfour\n'), 'gone');
  assert.equal(at(`one\ndef two():\n\treturn 20\n`), 'gone', 'a line that only begins so is another line');
  assert.equal(at(`one\n  def two():\n\treturn 2\n`), 'gone', 'one that only ends so too');
  assert.equal(at(`one\ndef two():\n    return 2\n`), 'gone', 'tabs became spaces');
  assert.equal(at(`x\nx\nx\n${TARGET.code}\n${TARGET.code}\n`), 'several');
  assert.equal(at(''), 'gone');
});

test('other line ends are the same lines', () => {
  assert.deepEqual(placeIn('x\r\ny\r\none\r\ndef two():\r\n\treturn 2\r\nz', TARGET), { start: 11, end: 32 });
  const windows = { ...TARGET, code: TARGET.code.replace('\n', '\r\n') };
  assert.equal(at('x\ny\none\ndef two():\n\treturn 2\nz', windows), TARGET.code);
});

test('a formatter, a cut end and old line ends: what is not the same lines is gone, what is stays found', () => {
  assert.equal(at('one\ndef two( ):\n\treturn 2\n'), 'gone', 'a formatter put a space in');
  assert.equal(at('one\ndef two():  \n\treturn 2\n'), 'gone', 'trailing white space');
  assert.equal(at('one\ndef two():\n\n\treturn 2\n'), 'gone', 'a line between its lines');
  assert.equal(at('one\ndef two():'), 'gone', 'the file ends in the middle of it');
  assert.equal(at('x\ry\rone\rdef two():\r\treturn 2\r'), 'def two():\r\treturn 2', 'line ends of old Macs');
  const blank: Target = { ...TARGET, endLine: 3, code: `${TARGET.code}\n` };
  assert.equal(at('# new\none\ndef two():\n\treturn 2\n\nend', blank), blank.code, 'a blank line belongs to it');
  assert.equal(at('# new\none\ndef two():\n\treturn 2\nend', blank), 'gone', 'and is missed');
  const overlapping: Target = { ...TARGET, startLine: 9, code: 'a\na' };
  assert.equal(at('a\na\na\n', overlapping), 'several', 'copies that overlap are two places');
});

test('an empty line is found where it stood and nowhere else', () => {
  const empty: Target = { uri: 'file:///a', startLine: 1, endLine: 1, code: '' };
  assert.deepEqual(placeIn('a\n\nb', empty), { start: 2, end: 2 });
  assert.equal(placeIn('a\nb\n\nc', empty), 'gone');
});

test('a large file is searched at once', () => {
  const text = `${'x\n'.repeat(400_000)}def two():\n\treturn 2\n`;
  assert.equal(at(text), TARGET.code);
});

test('what became of the place is a sentence with the way out', () => {
  for (const lost of ['gone', 'several'] as const) {
    assert.match(lostText('a.py', lost), /a\.py\. Select .* ask again\.$/);
  }
  assert.match(lostText('a.py', 'unreadable'), /^a\.py cannot be opened any more/, 'deleted, moved or renamed');
});

test('what the panel says around an answer is plain; the answer is the model\'s own', () => {
  const conversation = new Conversation();
  const turn = conversation.ask('q', 'm');
  const hostile = 'a\u202eb\n[x](command:y) $(z)';
  const plainly = 'a\\u202eb\\n[x] (command:y) $ (z)';
  apply(turn, { type: 'loading', model: hostile, fraction: 0, unloads: '' });
  assert.equal(turn.stage, `Loading ${plainly}, 0 %`);
  apply(turn, { type: 'notice', text: hostile });
  assert.deepEqual(turn.notices, [plainly]);
  apply(turn, { type: 'text', text: hostile });
  fail(turn, hostile, 'engine_failed');
  assert.equal(turn.error?.text, plainly);
  assert.equal(turn.answer, hostile);
});
