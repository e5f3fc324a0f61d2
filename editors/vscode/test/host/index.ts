/** Runs inside the extension host of a real editor: what other extensions see of the local models. */
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import * as vscode from 'vscode';

/** One line for each test, read by whoever started the editor. */
const RESULTS = process.env['MODELD_HOST_RESULTS'] ?? '';
const WAIT_MS = 60_000;

async function until<T>(what: () => T | undefined | false | PromiseLike<T | undefined | false>): Promise<T> {
  const end = Date.now() + WAIT_MS;
  for (;;) {
    const found = await what();
    if (found) {
      return found;
    }
    assert.ok(Date.now() < end, 'waited too long');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function models(): Promise<vscode.LanguageModelChat[] | undefined> {
  const found = await vscode.lm.selectChatModels({ vendor: 'modeld' });
  return found.length === 2 ? found : undefined;
}

async function alpha(): Promise<vscode.LanguageModelChat> {
  const [first] = await until(models);
  assert.ok(first);
  return first;
}

const user = (text: string): vscode.LanguageModelChatMessage => vscode.LanguageModelChatMessage.User(text);

async function text(response: vscode.LanguageModelChatResponse): Promise<string> {
  let whole = '';
  for await (const part of response.text) {
    whole += part;
  }
  return whole;
}

const TOOL: vscode.LanguageModelChatTool = {
  name: 'lookup',
  description: 'looks something up',
  inputSchema: { type: 'object', properties: { key: { type: 'string' } }, required: ['key'] },
};

const tests: Record<string, () => Promise<void>> = {
  'models are listed with stable ids and honest limits': async () => {
    const found = await until(models);
    assert.deepEqual(found.map((model) => model.id), ['alpha', 'beta']);
    assert.ok((found[0]?.maxInputTokens ?? 0) > 100_000);
  },
  'a turn streams in several parts': async () => {
    const response = await (await alpha()).sendRequest([user('quince')], {});
    const parts: string[] = [];
    for await (const part of response.text) {
      parts.push(part);
    }
    assert.equal(parts.join('').trim(), Array.from({ length: 12 }, (_, index) => `quince${index}`).join(' '));
    assert.ok(parts.length > 2, `it came in ${parts.length} parts`);
  },
  'the history of a second turn is answered too': async () => {
    const history = [user('quince'), vscode.LanguageModelChatMessage.Assistant('quince0'), user('more')];
    assert.match(await text(await (await alpha()).sendRequest(history, {})), /quince11/);
  },
  'thoughts come beside the text, as thoughts': async () => {
    const response = await (await alpha()).sendRequest([user('rosemary')], {});
    let said = '';
    let thought = '';
    for await (const part of response.stream) {
      const { value } = part as { value?: unknown };
      if (part instanceof vscode.LanguageModelTextPart) {
        said += part.value;
      } else {
        thought += Array.isArray(value) ? value.join('') : String(value);
      }
    }
    assert.match(said, /^\s*ripe0 .*ripe7\s*$/);
    assert.match(thought, /muse0 muse1 muse2 muse3/);
  },
  'a cancel ends the stream': async () => {
    const cancel = new vscode.CancellationTokenSource();
    const response = await (await alpha()).sendRequest([user('zeppelin')], {}, cancel.token);
    let parts = 0;
    try {
      for await (const _ of response.text) {
        parts += 1;
        if (parts === 2) {
          cancel.cancel();
        }
        assert.ok(parts < 500, 'it goes on after the cancel');
      }
    } catch (error) {
      assert.ok(error instanceof vscode.CancellationError || /cancel/i.test(String(error)), String(error));
    }
  },
  'tool calls come out whole and results go back': async () => {
    const model = await alpha();
    const asked = [user('persimmon')];
    const calls: vscode.LanguageModelToolCallPart[] = [];
    for await (const part of (await model.sendRequest(asked, { tools: [TOOL] })).stream) {
      if (part instanceof vscode.LanguageModelToolCallPart) {
        calls.push(part);
      }
    }
    assert.deepEqual(calls.map((call) => [call.name, call.input]), [['lookup', { key: 'stone' }]]);
    const [call] = calls;
    assert.ok(call);
    const result = new vscode.LanguageModelToolResultPart(call.callId, [new vscode.LanguageModelTextPart('the stone is blue')]);
    const next = [
      ...asked,
      vscode.LanguageModelChatMessage.Assistant([call]),
      new vscode.LanguageModelChatMessage(vscode.LanguageModelChatMessageRole.User, [result]),
    ];
    assert.match(await text(await model.sendRequest(next, { tools: [TOOL] })), /blue4/);
  },
  'tokens are counted by the tokenizer of the loaded model': async () => {
    const model = await alpha();
    assert.equal(await model.countTokens('zzzzzzzzzz'), 10, 'the vocabulary is one of bytes');
  },
  'a prompt that does not fit is refused with its numbers': async () => {
    const model = await alpha();
    await assert.rejects(
      async () => text(await model.sendRequest([user('z'.repeat(300_000))], {})),
      /does not fit.*300,0\d\d tokens.*262,144/s,
    );
  },
  'errors of a file get a light bulb': async () => {
    const document = await vscode.workspace.openTextDocument({ content: 'x = 1\ny = z\n', language: 'python' });
    const problems = vscode.languages.createDiagnosticCollection('test');
    const range = new vscode.Range(1, 4, 1, 5);
    problems.set(document.uri, [new vscode.Diagnostic(range, 'z is not defined', vscode.DiagnosticSeverity.Error)]);
    const ours = async (): Promise<vscode.CodeAction | undefined> => {
      const kind = vscode.CodeActionKind.QuickFix.value;
      const command = 'vscode.executeCodeActionProvider';
      const actions = await vscode.commands.executeCommand<vscode.CodeAction[]>(command, document.uri, range, kind);
      return actions.find((action) => action.title === 'Fix with a local model');
    };
    const action = await until(ours);
    assert.equal(action.command?.command, 'modeld.fix');
    const [target] = (action.command.arguments ?? []) as [{ startLine: number; problems: string[] }];
    assert.deepEqual([target.startLine, target.problems], [1, ['line 2: z is not defined']]);
    const rewrite = vscode.CodeActionKind.RefactorRewrite.value;
    const command = 'vscode.executeCodeActionProvider';
    const selected = await vscode.commands.executeCommand<vscode.CodeAction[]>(command, document.uri, range, rewrite);
    const titles = selected.map((one) => one.title);
    assert.ok(titles.includes('Document with a local model') && titles.includes('Write tests with a local model'), `${titles}`);
    problems.dispose();
  },
  'our commands are there, and the inline completion is off': async () => {
    const commands = await vscode.commands.getCommands(true);
    assert.ok(commands.includes('modeld.pickModel'));
    assert.equal(vscode.workspace.getConfiguration('modeld').get('inlineCompletion.enabled'), false);
  },
};

/** Called by the editor. */
export async function run(): Promise<void> {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    let outcome = 'ok';
    try {
      await test();
    } catch (error) {
      failed += 1;
      outcome = error instanceof Error ? `${error.message}\n${error.stack ?? ''}` : String(error);
    }
    fs.appendFileSync(RESULTS, `${JSON.stringify({ name, outcome })}\n`);
  }
  fs.appendFileSync(RESULTS, `${JSON.stringify({ name: '', outcome: failed === 0 ? 'ok' : `${failed} failed` })}\n`);
}
