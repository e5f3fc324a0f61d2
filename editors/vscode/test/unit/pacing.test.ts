/** Reports are paced: the first at once, the next joined. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Later, PACE_MS, Pacer } from '../../src/models/pacing.ts';
import { Clock } from './clock.ts';

function paced(): { clock: Clock; pacer: Pacer<'text' | 'reasoning'>; seen: [number, string, string][] } {
  const clock = new Clock();
  const seen: [number, string, string][] = [];
  const pacer = new Pacer<'text' | 'reasoning'>((kind, text) => seen.push([clock.time, kind, text]), clock);
  return { clock, pacer, seen };
}

for (const gap of [1, 10, 25, 33, 100]) {
  test(`at a token every ${gap} ms the first goes out at once and the rest at least ${PACE_MS} ms apart`, () => {
    const { clock, pacer, seen } = paced();
    const tokens = Array.from({ length: 40 }, (_, index) => `t${index} `);
    for (const token of tokens) {
      pacer.push('text', token);
      clock.pass(gap);
    }
    pacer.flush();
    assert.deepEqual(seen[0], [0, 'text', 't0 ']);
    assert.equal(seen.map(([, , text]) => text).join(''), tokens.join(''));
    const inner = seen.slice(0, -1); // the flush at the end waits for nothing
    for (const [index, [at]] of inner.entries()) {
      assert.ok(index === 0 || at - (inner[index - 1]?.[0] ?? 0) >= PACE_MS);
    }
  });
}

test('thoughts and text are never joined and keep their order', () => {
  const { clock, pacer, seen } = paced();
  pacer.push('reasoning', 'a');
  pacer.push('reasoning', 'b');
  pacer.push('text', 'c');
  pacer.push('text', 'd');
  clock.pass(PACE_MS);
  assert.deepEqual(seen.map(([, kind, text]) => [kind, text]), [
    ['reasoning', 'a'],
    ['reasoning', 'b'],
    ['text', 'cd'],
  ]);
});

test('a flush leaves no timer, and the next piece after a pause goes out at once', () => {
  const { clock, pacer, seen } = paced();
  pacer.push('text', 'a');
  pacer.push('text', 'b');
  pacer.flush();
  assert.equal(clock.armed, 0);
  clock.pass(1000);
  pacer.push('text', 'c');
  assert.deepEqual(seen.at(-1), [1000, 'text', 'c']);
});

test('what is put off is done once, also when it is asked for again meanwhile', () => {
  const clock = new Clock();
  const done: number[] = [];
  const later = new Later(() => done.push(clock.time), clock, 100);
  later.soon();
  clock.pass(60);
  later.soon();
  clock.pass(40);
  assert.deepEqual(done, [100]);
  later.soon();
  later.forget();
  clock.pass(200);
  assert.deepEqual(done, [100]);
  assert.equal(clock.armed, 0);
});
