/** Finding an interpreter, judging it, restarting, and the sentences for what fails. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BRIDGE_LOST, failureOf } from '../../src/bridge/failures.ts';
import { IDLE_CHECK_MS, IdleRestart } from '../../src/bridge/idle.ts';
import { candidates, type Candidate, type Surroundings } from '../../src/bridge/interpreter.ts';
import { readOffer } from '../../src/bridge/offer.ts';
import { installArguments, judge, nearest, type Ended, type Problem, type ProblemKind } from '../../src/bridge/preflight.ts';
import { FORGIVEN_MS, PAUSES_MS, Restarts } from '../../src/bridge/restarts.ts';
import { remedies } from '../../src/bridge/state.ts';

const around: Surroundings = { setting: '', chosen: '', windows: false, home: '/home/ö', workspace: '/w s' };
const python: Candidate = { command: '/p/python', before: [], origin: 'PATH', explicit: false };
const named: Candidate = { ...python, origin: 'the setting modeld.python', explicit: true };

function ended(fields: Partial<Ended> & { look?: object } = {}): Ended {
  const { look, ...rest } = fields;
  const whole = { executable: '/p/python', version: [3, 12, 1], package: true, lsp: true, command: '', ...look };
  return { spawnError: '', exitCode: 0, timedOut: false, output: `\n${JSON.stringify(whole)}\n`, errors: '', ...rest };
}

test('the order: a setting alone, else the Python extension, else PATH', () => {
  assert.deepEqual(candidates({ ...around, setting: ' /x/python ' }).map((one) => one.command), ['/x/python']);
  const all = candidates({ ...around, chosen: '/venv/bin/python' }).map((one) => one.command);
  assert.deepEqual(all, ['/venv/bin/python', 'python3', 'python']);
  assert.deepEqual(candidates({ ...around, windows: true })[0], {
    command: 'py',
    before: ['-3'],
    origin: 'the Python launcher',
    explicit: false,
  });
});

test('paths of the setting: home, workspace, relative, with spaces and other letters', () => {
  const path = (setting: string): string | undefined => candidates({ ...around, setting })[0]?.command;
  assert.equal(path('~/venv/bin/python'), '/home/ö/venv/bin/python');
  assert.equal(path('${workspaceFolder}/.venv/bin/python'), '/w s/.venv/bin/python');
  assert.equal(path('.venv/bin/python'), '/w s/.venv/bin/python');
  assert.equal(path('python3.12'), 'python3.12');
  assert.equal(path('C:\\Päth\\python.exe'), 'C:\\Päth\\python.exe');
});

test('a good interpreter starts the module, and never from the folder the editor works in', () => {
  const { launch } = judge(python, ended());
  assert.equal(launch?.command, '/p/python');
  assert.deepEqual(launch?.arguments, ['-P', '-m', 'acp_bridge', 'lsp']);
});

test('noise printed before the answer does not hide it', () => {
  const output = `site says hello\n{"odd": 1}\n${ended().output}`;
  assert.ok(judge(python, ended({ output })).launch);
});

const bad: [ProblemKind, Ended, RegExp][] = [
  ['not_found', ended({ spawnError: 'ENOENT', exitCode: null, output: '' }), /no Python at/],
  ['not_executable', ended({ spawnError: 'EACCES', exitCode: null, output: '' }), /cannot be started/],
  ['does_not_run', ended({ exitCode: 1, output: 'Segmentation fault' }), /not a Python that runs/],
  ['does_not_run', ended({ output: 'v20.1.0' }), /not a Python that runs/],
  ['no_answer', ended({ timedOut: true, exitCode: null, output: '' }), /no answer/],
  ['too_old', ended({ look: { version: [3, 9, 2] } }), /Python 3\.9\.2; modeld needs 3\.11/],
  ['too_old', ended({ look: { version: [2, 7, 18], package: false, lsp: false } }), /2\.7\.18/],
  ['package_missing', ended({ look: { package: false, lsp: false } }), /not installed/],
  ['package_old', ended({ look: { lsp: false } }), /too old for this extension/],
];
for (const [kind, end, sentence] of bad) {
  test(`${kind} is said with a way out`, () => {
    const { problem, launch } = judge(named, end);
    assert.equal(launch, undefined);
    assert.equal(problem?.kind, kind);
    assert.match(problem?.text ?? '', sentence);
    assert.ok(remedies({ kind, text: '', detail: '' }).length >= 2);
  });
}

test('acp-bridge on PATH serves where no interpreter was named', () => {
  const end = ended({ look: { package: false, lsp: false, command: '/bin/acp-bridge' } });
  assert.deepEqual(judge(python, end).launch?.arguments, ['lsp']);
  assert.equal(judge(named, end).problem?.kind, 'package_missing');
});

test('of several problems the one nearest to working is reported', () => {
  const problem = (kind: ProblemKind): Problem => ({ kind, candidate: python, text: kind, detail: '', executable: '/p' });
  assert.equal(nearest([problem('not_found'), problem('package_missing'), problem('too_old')])?.kind, 'package_missing');
  assert.equal(nearest([]), undefined);
});

test('installing is offered where it helps', () => {
  const missing = judge(python, ended({ look: { package: false, lsp: false } })).problem;
  assert.deepEqual(missing && installArguments(missing), ['/p/python', '-m', 'pip', 'install', '--upgrade', 'modeld[openvino]']);
  const old = judge(python, ended({ look: { version: [3, 9, 2] } })).problem;
  assert.equal(old && installArguments(old), undefined);
});

test('a bridge that cannot live is given up after growing pauses, and a crash now and then is not', () => {
  const restarts = new Restarts();
  assert.deepEqual([0, 1, 2, 3, 4].map((now) => restarts.died(now)), [...PAUSES_MS, undefined]);
  restarts.forgive();
  assert.equal(restarts.died(5), 0);
  assert.equal(restarts.died(6 + FORGIVEN_MS), 0);
});

test('what a bridge offers', () => {
  assert.deepEqual(readOffer({ modeld: { wire: 1, version: '0.1', methods: ['x'] } })?.wire, 1);
  assert.equal(readOffer({}), undefined);
  assert.equal(readOffer(undefined), undefined);
});

test('errors become sentences: typed ones keep theirs, a lost connection gets ours', () => {
  const busy = failureOf({ code: -32042, message: 'modeld is not running; start it', data: { kind: 'daemon_not_running' } });
  assert.deepEqual([busy.message, busy.kind], ['modeld is not running; start it', 'daemon_not_running']);
  assert.equal(failureOf({ code: -32097, message: 'Pending response rejected since connection got disposed' }).message, BRIDGE_LOST);
  assert.equal(failureOf({ code: -32800, message: 'x' }).kind, 'cancelled');
  assert.equal(failureOf(new Error('odd')).kind, 'internal_error');
});

test('a prompt that does not fit is refused with numbers and a way out', () => {
  const data = { kind: 'context_overflow', context: 4096, resident: 0, additional: 15_990 };
  const { message } = failureOf({ code: -32021, message: 'too long', data });
  assert.match(message, /15,990/);
  assert.match(message, /4,096/);
  assert.match(message, /larger context/);
});

test('a changed setting waits for the turn, and several changes restart once', (context) => {
  context.mock.timers.enable({ apis: ['setTimeout'] });
  let restarts = 0;
  const bridge = {
    busy: true,
    restart: (): Promise<void> => {
      restarts += 1;
      return Promise.resolve();
    },
  };
  const idle = new IdleRestart(bridge);
  idle.restart();
  idle.restart();
  context.mock.timers.tick(IDLE_CHECK_MS * 3);
  assert.equal(restarts, 0);
  bridge.busy = false;
  context.mock.timers.tick(IDLE_CHECK_MS);
  assert.equal(restarts, 1);
  idle.dispose();
});
