/** The list behind the editor's picker, and what is said of a model. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Fit, Model, Models } from '../../src/wire.ts';
import { GRACE_MS, HeldModels, NOTHING } from '../../src/models/held.ts';
import { AGENT_TOKENS, decoration, information, warnings } from '../../src/models/information.ts';

const fit: Fit = {
  verdict: 'fits',
  text: 'fits',
  context: 8192,
  weightsBytes: 1e9,
  kvBytes: 1e8,
  computeBytes: 1e8,
  requiredBytes: 12e8,
  freeBytes: 8e9,
  reserveBytes: 5e8,
  source: 'estimate from its header',
};

export function model(fields: Partial<Model> = {}): Model {
  return {
    id: 'qwen',
    name: 'Qwen 3 4B',
    group: 'installed',
    state: 'not loaded',
    detail: 'not loaded, 1.2 GB',
    selectable: true,
    reason: '',
    actions: ['activate'],
    provider: '',
    backend: 'llama',
    format: 'gguf',
    architecture: 'qwen3',
    quantization: 'Q4_K_M',
    parameters: 4e9,
    sizeBytes: 12e8,
    path: '/models/qwen.gguf',
    context: 0,
    contextOwn: 40_960,
    window: 8192,
    tools: true,
    thinking: false,
    thinkingLevels: [],
    vision: false,
    fim: false,
    embeddingOnly: false,
    hasTemplate: true,
    fit,
    tokensPerS: 0,
    ...fields,
  };
}

function reported(models: Model[], fields: Partial<Models> = {}): Models {
  const local = models.find((one) => one.selectable && one.group !== 'remote');
  return { models, picked: '', default: local?.id ?? '', reason: '', complete: true, ...fields };
}

const remote = (id: string): Model => model({ id, group: 'remote', state: 'remote', provider: 'lab', actions: ['use'] });

const identity = (models: readonly Model[]): unknown => models.map(({ id, name }) => [id, name]);

test('the list neither empties nor moves while the bridge is away', () => {
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model(), model({ id: 'beta', name: 'Beta' })]));
  const before = identity(held.listed);
  held.away('waiting for modeld');
  assert.deepEqual(identity(held.listed), before);
  assert.deepEqual(held.listed.map((row) => row.detail), ['waiting for modeld', 'waiting for modeld']);
});

test('remote models keep their state when the bridge is away', () => {
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model({ group: 'remote', state: 'remote', detail: 'remote, vllm' })], { picked: 'qwen' }));
  held.away('waiting');
  assert.equal(held.listed[0]?.detail, 'remote, vllm');
});

test('a window that was reloaded shows the last list at once', () => {
  const first = new HeldModels(undefined, 'waiting');
  first.learn(reported([model()], { picked: 'qwen' }));
  const second = new HeldModels(JSON.parse(JSON.stringify(first.kept)), 'waiting');
  assert.deepEqual(identity(second.listed), identity(first.listed));
  assert.equal(second.picked, 'qwen');
});

test('a bridge that has not looked yet does not empty the list', () => {
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model()]));
  held.learn(reported([], { complete: false }));
  held.learn(reported([remote('lab/big')], { complete: false }));
  assert.deepEqual(held.listed.map((row) => row.id), ['qwen']);
});

test('a remote model answers only where it was picked, whatever becomes of the local ones', () => {
  const held = new HeldModels(undefined, 'waiting');
  const answers = (): string | undefined => held.current?.id;
  const reason = 'modeld is not running; start it with `modeld start`, or pick a remote model';
  held.learn(reported([model(), remote('lab/big')]));
  assert.equal(answers(), 'qwen');
  held.learn(reported([model({ selectable: false }), remote('lab/big')], { reason }));
  assert.equal(answers(), undefined);
  assert.equal(held.marked, NOTHING);
  assert.deepEqual(held.listed.map((row) => [row.id, row.reason]), [[NOTHING, reason], ['lab/big', '']]);
  const reloaded = new HeldModels(JSON.parse(JSON.stringify(held.kept)), 'waiting');
  assert.equal(reloaded.current, undefined, 'nor in a window that was reloaded');
  held.learn(reported([remote('lab/big')], { default: 'lab/big' }));
  assert.equal(answers(), undefined, 'nor as the default of an older bridge');
  held.expire('the bridge does not run');
  assert.equal(answers(), undefined);
  held.learn(reported([remote('lab/big')], { picked: 'lab/big' }));
  assert.equal(answers(), 'lab/big');
  assert.deepEqual(held.listed.map((row) => row.id), ['lab/big']);
});

test('a pick that nobody lists is nothing else', () => {
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model(), remote('lab/big')]));
  held.picked = 'lab/gone';
  assert.equal(held.current, undefined);
});

test('a window that was reloaded knows what answers without a pick', () => {
  const first = new HeldModels(undefined, 'waiting');
  first.learn(reported([model(), remote('lab/big')]));
  const second = new HeldModels(JSON.parse(JSON.stringify(first.kept)), 'waiting');
  assert.equal(second.current?.id, 'qwen');
});

test('past the grace the pick stays with its reason, and without a pick one entry explains', () => {
  assert.ok(GRACE_MS >= 60_000);
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model(), model({ id: 'beta', name: 'Beta' })], { picked: 'beta' }));
  held.expire('modeld is not installed');
  assert.deepEqual(identity(held.listed), [['beta', 'Beta']]);
  assert.equal(held.listed[0]?.reason, 'modeld is not installed');
  const nobody = new HeldModels(undefined, 'waiting');
  nobody.expire('modeld is not installed');
  assert.deepEqual(nobody.listed.map((row) => [row.id, row.selectable]), [[NOTHING, false]]);
  assert.equal(nobody.listed[0]?.detail, 'modeld is not installed');
});

test('before anything is known nothing is shown, so that no entry appears and vanishes', () => {
  assert.deepEqual(new HeldModels(undefined, 'waiting').listed, []);
});

test('models that cannot be picked and embedding models stay out of the picker', () => {
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model(), model({ id: 'e', embeddingOnly: true }), model({ id: 'x', selectable: false })]));
  assert.deepEqual(held.listed.map((row) => row.id), ['qwen']);
});

test('the pick answers, else the default', () => {
  const held = new HeldModels(undefined, 'waiting');
  held.learn(reported([model({ id: 'a' }), model({ id: 'b' }), model({ id: 'c' })], { picked: 'c', default: 'b' }));
  assert.equal(held.current?.id, 'c');
  held.picked = '';
  assert.equal(held.current?.id, 'b');
});

test('id, name, family and version do not depend on the state', () => {
  const stable = ({ id, name, family, version, capabilities }: ReturnType<typeof information>): unknown => [
    id,
    name,
    family,
    version,
    capabilities,
  ];
  const states: Partial<Model>[] = [
    { state: 'loaded', group: 'active', context: 8192 },
    { state: 'restarting', detail: 'restarting' },
    { state: 'loading' },
  ];
  for (const fields of states) {
    assert.deepEqual(stable(information(model(fields))), stable(information(model())));
  }
});

test('the context shown is the window a turn may count on, not the architecture', () => {
  const shown = information(model({ window: 4096, contextOwn: 131_072 }));
  assert.equal(shown.maxInputTokens + shown.maxOutputTokens, 4096);
  assert.ok(shown.maxOutputTokens >= 1024);
});

test('the line beside the name is short, so that the name has room', () => {
  const long = model({ detail: 'not loaded, 1.2 GB, context 40,960, Q4_K_M' });
  assert.equal(information(long).detail, 'not loaded, 1.2 GB');
  assert.match(information(long).tooltip, /Q4_K_M/);
});

test('tools are offered only where the template has them', () => {
  assert.equal(information(model({ tools: false })).capabilities.toolCalling, false);
  assert.equal(information(model({ tools: true })).capabilities.toolCalling, true);
});

test('a window too small for Agent mode is said before the turn, with numbers', () => {
  const [warning = ''] = warnings(model({ window: 8192 }));
  assert.match(warning, /Agent mode/);
  assert.match(warning, /16,000/);
  assert.match(warning, /8,192/);
  assert.deepEqual(warnings(model({ window: AGENT_TOKENS })), []);
});

test('a forecast that does not fit is a warning while the model is not loaded', () => {
  const big = { ...fit, verdict: 'too_big' as const, text: 'needs 9.0 GB, 4.0 GB are free' };
  assert.deepEqual(warnings(model({ fit: big, window: 32_000 })), [big.text]);
  assert.deepEqual(warnings(model({ fit: big, window: 32_000, context: 32_000, state: 'loaded' })), []);
});

test('the undocumented fields have the shapes the editor reads', () => {
  const fields = decoration(model({ thinkingLevels: ['low', 'high'] }));
  assert.equal(fields.isUserSelectable, true);
  assert.ok(Array.isArray(fields.warningText), 'a plain string would be split into letters');
  assert.ok(fields.configurationSchema);
  assert.equal(decoration(model()).configurationSchema, undefined);
});
