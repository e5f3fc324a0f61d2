/** Token counts: asked one by one, sent together, never failing, never waited for long. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DOUBT_MS, guess, PATIENCE_MS, TokenCounts, type Counter } from '../../src/models/counts.ts';
import { Clock } from './clock.ts';

const TEXT = 'four words are here';

test('counts of one moment travel in one request for each model', async () => {
  const asked: [string, string[]][] = [];
  const counter: Counter = (model, texts) => {
    asked.push([model, texts]);
    return Promise.resolve({ each: texts.map((text) => text.length), exact: true });
  };
  const counts = new TokenCounts(counter, new Clock());
  const found = await Promise.all([counts.count('a', 'x'), counts.count('a', 'yyy'), counts.count('b', 'zz')]);
  assert.deepEqual(found, [1, 3, 2]);
  assert.deepEqual(asked, [
    ['a', ['x', 'yyy']],
    ['b', ['zz']],
  ]);
});

test('what was counted once is not asked again', async () => {
  let requests = 0;
  const counter: Counter = (_, texts) => {
    requests += 1;
    return Promise.resolve({ each: texts.map(() => 7), exact: true });
  };
  const counts = new TokenCounts(counter, new Clock());
  await counts.count('a', TEXT);
  assert.equal(await counts.count('a', TEXT), 7);
  assert.equal(requests, 1);
});

test('without a tokenizer it is an upper estimate, asked again once the models have changed', async () => {
  let there = false;
  let requests = 0;
  const counter: Counter = (_, texts) => {
    requests += 1;
    return there ? Promise.resolve({ each: texts.map(() => 2), exact: true }) : Promise.reject(new Error('away'));
  };
  const counts = new TokenCounts(counter, new Clock());
  assert.equal(await counts.count('a', TEXT), guess(TEXT));
  there = true;
  assert.equal(await counts.count('a', TEXT), guess(TEXT));
  assert.equal(requests, 1, 'hundreds of counts must not each find out again');
  counts.trust();
  assert.equal(await counts.count('a', TEXT), 2);
});

test('a guess of the bridge is used and not kept', async () => {
  let exact = false;
  const clock = new Clock();
  const counts = new TokenCounts((_, texts) => Promise.resolve({ each: texts.map(() => (exact ? 3 : 9)), exact }), clock);
  assert.equal(await counts.count('a', TEXT), guess(TEXT));
  exact = true;
  clock.pass(DOUBT_MS + 1);
  assert.equal(await counts.count('a', TEXT), 3);
});

test('a tokenizer that is late is not waited for, and its answer is kept when it comes', async () => {
  const clock = new Clock();
  let answer: (counted: { each: number[]; exact: boolean }) => void = () => undefined;
  const counts = new TokenCounts(() => new Promise((resolve) => (answer = resolve)), clock);
  const asked = counts.count('a', TEXT);
  await new Promise((resolve) => setImmediate(resolve));
  clock.pass(PATIENCE_MS);
  assert.equal(await asked, guess(TEXT));
  answer({ each: [4], exact: true });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(await counts.count('a', TEXT), 4);
  assert.equal(clock.armed, 0);
});
