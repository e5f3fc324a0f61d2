/** Text from outside makes no link, no icon and no forged line; and one place calls the editor's message functions. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import MarkdownIt from 'markdown-it';
import { inMarkdown, plain, plainAll, plainLines } from '../../src/plain.ts';

const SOURCE = join(import.meta.dirname, '../../src');
const HOSTILE = [
  '[Fix it](command:workbench.action.terminal.new?%5B%5D).gguf',
  '[a](https://example.invalid "title") [b](file:///etc/passwd)',
  '$(alert)$(sync~spin) \\$(bell)',
  '![x](https://example.invalid/) <img src=x onerror=y> <https://example.invalid>',
  'one\nforged: two\r\u2028three\u2029\x85',
  '\x1b]0;PWNED\x07 \x9b2J \x7f',
  'exe.\u202egpj\u202c \u2066x\u2069 \u200f\u061c',
  'ab\u200bcd\u2060\ufeff\u00ad \u{e0041}\u{e007f} \ud800',
  '`` ` ``` [x](command:y) \\[x](command:y) \\\\<b>',
  '[x]: command:y\n\n[x]',
];
/** What the editor makes links of in messages (its `linkedText.ts`) and icons in labels (its `iconLabels.ts`). */
const LINK = /\[([^\]]+)\]\(((?:https?:\/\/|command:|file:)[^)\s]+)(?: (["'])(.+?)(\3))?\)/i;
const ICON = /\$\(([A-Za-z0-9-]+(?:~[A-Za-z]+)?)\)/;
const ACTS = /[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}\p{Cs}]/u;

test('a message holds no link, no icon and one line', () => {
  assert.ok(HOSTILE.some((text) => LINK.test(text)) && HOSTILE.some((text) => ICON.test(text)), 'the patterns see them');
  for (const text of HOSTILE) {
    const shown = plain(`${text} cannot be used`);
    assert.doesNotMatch(shown, LINK);
    assert.doesNotMatch(shown, ICON);
    assert.doesNotMatch(shown, ACTS);
    assert.equal(plain(shown), shown, 'running it again changes nothing');
  }
});

test('a link is not made of two texts either', () => {
  assert.doesNotMatch(plain(`${'[x]'}${'(command:y)'}`), LINK);
});

test('what people write stays', () => {
  for (const text of ['naïve (1).gguf', 'C:\\models\\a_b-c.gguf', 'a[0] = f(x)', '日本語 🙂', 'costs $5 (about)']) {
    assert.equal(plain(text), text);
  }
});

test('long text is cut where a person sees it', () => {
  assert.equal(plain('abcdef', 4), 'abc…');
  assert.ok(plain('a'.repeat(100_000)).length <= 1000);
});

test('lines of ours stay lines, and a value of the wire is plain in every place', () => {
  assert.equal(plainLines('one [x](command:y)\ntwo'), 'one [x] (command:y)\ntwo');
  const value = { name: '$(x)', list: ['a\nb'], inner: { text: '[a](b)', count: 1, none: null, yes: true } };
  assert.deepEqual(plainAll(value), {
    name: '$ (x)',
    list: ['a\\nb'],
    inner: { text: '[a] (b)', count: 1, none: null, yes: true },
  });
});

test('Markdown of the chat view has code, and no link, image or HTML', () => {
  const reader = new MarkdownIt('commonmark');
  const kinds = (text: string): string[] =>
    reader.parse(text, {}).flatMap((token) => [token, ...(token.children ?? [])].map((each) => each.type));
  const acting = ['link_open', 'image', 'html_inline', 'html_block'];
  for (const text of HOSTILE) {
    assert.deepEqual(kinds(inMarkdown(text)).filter((kind) => acting.includes(kind)), [], text);
    assert.doesNotMatch(inMarkdown(text), ACTS);
  }
  assert.deepEqual(kinds(inMarkdown('start it with `modeld start`')).filter((kind) => kind === 'code_inline').length, 1);
});

function sources(): [string, string][] {
  return readdirSync(SOURCE, { recursive: true, encoding: 'utf-8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => [name, readFileSync(join(SOURCE, name), 'utf-8')]);
}

test('one place alone calls what makes links of text', () => {
  const direct = /window\s*\.\s*(show(Information|Warning|Error)Message|withProgress|setStatusBarMessage)\b/;
  const found = sources().filter(([, text]) => direct.test(text)).map(([name]) => name);
  assert.deepEqual(found, ['messages.ts']);
});

test('no Markdown of ours is trusted with commands, icons or HTML', () => {
  assert.deepEqual(sources().filter(([, text]) => /isTrusted|supportThemeIcons|supportHtml/.test(text)).map(([name]) => name), []);
  const made = sources().filter(([, text]) => text.includes('MarkdownString')).map(([name]) => name);
  assert.deepEqual(made, [join('status', 'items.ts')], 'text is put into it by `appendText`');
});
