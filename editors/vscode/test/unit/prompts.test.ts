/** What the commands ask, and when ghost text is asked for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commitPrompt, DIFF_MOST, fixQuestion, promptFor, tidyCommit } from '../../src/commands/prompts.ts';
import { mayAsk, type Moment } from '../../src/inline/gate.ts';
import { count, size } from '../../src/text.ts';

test('a long diff is cut and says so', () => {
  const { user } = commitPrompt('+'.repeat(DIFF_MOST + 10), '', []);
  assert.match(user, /the rest of the change is left out/);
  assert.ok(user.length < DIFF_MOST + 1000);
});

test('instructions replace the usual style and earlier messages show it', () => {
  const { user } = commitPrompt('+x', 'In German.', ['Fix the lamp']);
  assert.match(user, /In German\./);
  assert.doesNotMatch(user, /72 characters/);
  assert.match(user, /- Fix the lamp/);
});

test('what models put around a message is taken away', () => {
  assert.equal(tidyCommit('```\nAdd x\n\nBecause.\n```'), 'Add x\n\nBecause.');
  assert.equal(tidyCommit('Commit message: Add x\n'), 'Add x');
  assert.equal(tidyCommit('"Add x"'), 'Add x');
  assert.equal(tidyCommit('Say "hello"'), 'Say "hello"');
});

test('questions', () => {
  assert.match(fixQuestion(['line 3: x is not defined']), /- line 3: x is not defined/);
  assert.match(promptFor('explain', 'in short'), /step by step\. in short/);
  assert.equal(promptFor('', 'hi'), 'hi');
});

test('ghost text is asked for only where it is wanted and can help', () => {
  const yes: Moment = { enabled: true, scheme: 'file', language: 'python', disabledLanguages: [], busy: false, serving: true };
  assert.ok(mayAsk(yes));
  const no: Partial<Moment>[] = [
    { enabled: false },
    { scheme: 'chatSessionInput' },
    { scheme: 'vscode-scm' },
    { scheme: 'output' },
    { busy: true },
    { serving: false },
    { disabledLanguages: ['python'] },
  ];
  for (const fields of no) {
    assert.ok(!mayAsk({ ...yes, ...fields }), JSON.stringify(fields));
  }
});

test('numbers for people', () => {
  assert.deepEqual([count(1234567), count(12), size(1.24e9), size(94e6)], ['1,234,567', '12', '1.2 GB', '94 MB']);
});
