/** Our own picker and the status. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Description, Model, Status } from '../../src/wire.ts';
import { HeldModels, NOTHING } from '../../src/models/held.ts';
import { arithmetic, pickerRows, switchQuestion, unusable, type Row } from '../../src/picker/rows.ts';
import { shown } from '../../src/status/text.ts';
import { model } from './models.test.ts';

function status(fields: Partial<Status> = {}): Status {
  return {
    service: 'running',
    text: 'modeld runs',
    startable: false,
    backend: 'llama',
    version: '0.1.0',
    slot: 'Ready',
    model: 'qwen',
    device: 'CPU',
    context: 8192,
    generation: 1,
    tokensPerS: 31.6,
    busy: null,
    queue: [],
    memory: { requiredBytes: null, freeBytes: null, reserveBytes: null, measuredBytes: 15e8, pressure: false },
    clients: 1,
    pendingReload: false,
    lastError: '',
    ...fields,
  };
}

const rows = (models: Model[], now: Status = status()): Row[] => pickerRows(models, 'qwen', now, undefined, false);
const rowOf = (all: Row[], id: string): Extract<Row, { kind: 'model' }> => {
  const found = all.find((row) => row.kind === 'model' && row.model.id === id);
  assert.ok(found?.kind === 'model');
  return found;
};

test('groups stand in order, each under its heading, and everything has a way out', () => {
  const all = rows([
    model({ id: 'vllm/x', group: 'remote', state: 'remote', actions: [] }),
    model({ id: 'broken', group: 'unavailable', state: 'not servable', selectable: false, reason: 'a projector', actions: [] }),
    model({ id: 'other' }),
    model({ id: 'qwen', group: 'active', state: 'loaded', context: 8192, actions: ['use', 'unload'] }),
  ]);
  const headings = all.filter((row) => row.kind === 'heading').map((row) => row.label);
  assert.deepEqual(headings, ['Loaded', 'Installed', 'Remote', 'Not servable', 'modeld']);
  assert.match(rowOf(all, 'broken').detail, /a projector/);
});

test('the pick is marked, also in a row that is not loaded', () => {
  const all = rows([model({ id: 'qwen' }), model({ id: 'other' })]);
  assert.match(rowOf(all, 'qwen').label, /\$\(check\)/);
  assert.doesNotMatch(rowOf(all, 'other').label, /\$\(check\)/);
});

test('while nothing answers a row of its own is marked, and no model', () => {
  const held = new HeldModels(undefined, 'waiting');
  const remote = model({ id: 'vllm/x', group: 'remote', state: 'remote', actions: [] });
  held.learn({ models: [remote], picked: '', default: '', reason: 'modeld is not running; start it', complete: true });
  const all = pickerRows(held.all, held.marked, status(), undefined, false);
  assert.equal(all[0]?.kind === 'model' && all[0].model.id, NOTHING);
  assert.match(rowOf(all, NOTHING).label, /\$\(check\) No model/);
  assert.doesNotMatch(rowOf(all, 'vllm/x').label, /check/);
  assert.equal(unusable(rowOf(all, NOTHING).model), 'No model answers here: modeld is not running; start it.');
});

test('each action of a row is a button, and a switch names what it unloads', () => {
  const all = rows([model({ id: 'other', actions: ['switch'] }), model({ id: 'qwen', actions: ['use', 'unload'] })]);
  assert.deepEqual(rowOf(all, 'other').buttons.map((button) => button.does), ['switch', 'describe']);
  assert.match(rowOf(all, 'other').detail, /loading it unloads qwen/);
  assert.deepEqual(rowOf(all, 'qwen').buttons.map((button) => button.does), ['unload', 'describe']);
});

test('a stopped modeld can be started from the picker, a running one stopped', () => {
  const commands = (now: Status): string[] =>
    rows([], now).flatMap((row) => (row.kind === 'command' ? [row.command] : []));
  assert.ok(commands(status({ service: 'not_running', startable: true })).includes('modeld.start'));
  assert.ok(!commands(status({ service: 'not_running', startable: true })).includes('modeld.stop'));
  assert.ok(commands(status()).includes('modeld.stop'));
});

test('the arithmetic adds up on screen and the switch question names the consequence and whose it is', () => {
  const description: Description = {
    model: model({ id: 'other', name: 'Other' }),
    fit: model().fit,
    switch: 'Switching from qwen to other will unload qwen and drop its warm context',
    inUse: 'qwen is in use by Zed',
    warnings: [],
  };
  const lines = arithmetic(description).join('\n');
  assert.match(lines, /1\.0 GB \+ context memory 100 MB \+ working memory 100 MB = 1\.2 GB \(estimate from its header\)/);
  assert.match(lines, /8,192 tokens/);
  const question = switchQuestion(description);
  assert.match(question, /will unload qwen and drop its warm context/);
  assert.match(question, /warm context\. qwen is in use by Zed\. /);
});

test('the status bar: loaded with its speed, busy with its holder, stopped with a click that starts it', () => {
  const loaded = shown('running', undefined, status(), 'qwen');
  assert.equal(loaded.text, '$(pass-filled) qwen 32 tok/s');
  const busy = { operation: 'turn', stage: 'generating', holder: 'Zed', mine: false, model: 'qwen', ageS: 3, fraction: null };
  assert.match(shown('running', undefined, status({ busy }), '').line, /held by Zed for 3\.0 s/);
  const stopped = shown('running', undefined, status({ service: 'not_running', startable: true, text: 'modeld stopped' }), '');
  assert.equal(stopped.severity, 'warning');
  assert.match(stopped.details.join(), /start/);
});

test('the status bar in trouble says what it is, and never looks fine', () => {
  const trouble = { kind: 'package_missing' as const, text: 'modeld is not installed in /p', detail: '' };
  const failed = shown('failed', trouble, undefined, '');
  assert.equal(failed.severity, 'error');
  assert.equal(failed.line, trouble.text);
  assert.match(shown('running', undefined, status({ service: 'restarting', text: 'restarting' }), '').text, /restarting/);
  const queue = [{ client: 'Zed', mine: false, model: 'other', waitedS: 12 }];
  assert.match(shown('running', undefined, status({ queue }), '').details.join(), /Zed for other/);
});
