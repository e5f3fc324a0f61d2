/** Start, stop, status, doctor, logs and pull. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { failureOf } from '../bridge/failures.ts';
import type { Report } from '../wire.ts';
import { confirm, during, flash, inform } from '../messages.ts';
import { inMarkdown } from '../plain.ts';
import { report } from './report.ts';

/** Registers the commands. */
export function registerServiceCommands(bridge: Bridge, log: vscode.LogOutputChannel): vscode.Disposable {
  const command = (name: string, work: () => Promise<unknown>): vscode.Disposable =>
    vscode.commands.registerCommand(name, async () => {
      try {
        await work();
      } catch (error) {
        await report(failureOf(error));
      }
    });
  return vscode.Disposable.from(
    command('modeld.start', () => start(bridge)),
    command('modeld.stop', () => stop(bridge)),
    command('modeld.status', () => showStatus(bridge)),
    command('modeld.doctor', () => doctor(bridge)),
    command('modeld.pull', () => pull(bridge)),
    command('modeld.showLog', () => Promise.resolve(log.show())),
    command('modeld.showDaemonLogs', () => showDaemonLogs(bridge)),
  );
}

async function start(bridge: Bridge): Promise<void> {
  const title = 'Starting modeld';
  const said = await during({ location: vscode.ProgressLocation.Notification, title }, () =>
    bridge.request('modeld/start', {}),
  );
  flash(said.text);
}

async function stop(bridge: Bridge): Promise<void> {
  const { model, clients } = await bridge.request('modeld/status', {});
  const consequence = model ? `This unloads ${model} for every editor` : 'This ends it for every editor';
  const others = clients > 1 ? ` (${clients} are connected)` : '';
  const answer = await confirm('Stop modeld?', `${consequence}${others}.`, 'Stop');
  if (answer === 'Stop') {
    const said = await bridge.request('modeld/stop', {});
    flash(said.text);
  }
}

async function showStatus(bridge: Bridge): Promise<void> {
  const status = await bridge.request('modeld/status', {});
  const action = status.startable ? 'Start modeld' : 'Choose Model…';
  const chosen = await inform(status.text, action);
  if (chosen !== undefined) {
    await vscode.commands.executeCommand(status.startable ? 'modeld.start' : 'modeld.pickModel');
  }
}

async function doctor(bridge: Bridge): Promise<void> {
  const title = 'Checking what works';
  const found = await during({ location: vscode.ProgressLocation.Notification, title }, () =>
    bridge.request('modeld/doctor', {}),
  );
  const document = await vscode.workspace.openTextDocument({ content: reportText(found), language: 'markdown' });
  await vscode.window.showTextDocument(document, { preview: true });
}

function reportText(found: Report): string {
  const lines = found.findings.map((finding) => `- ${finding.good ? 'OK' : '**TO DO**'} ${finding.about}: ${inMarkdown(finding.text)}`);
  return [
    '# What works',
    '',
    ...lines,
    '',
    `modeld ${found.version}, run by ${found.python}`,
    `data: ${found.root}`,
    `logs: ${found.logs}`,
    '',
  ].join('\n');
}

async function pull(bridge: Bridge): Promise<void> {
  const source = await vscode.window.showInputBox({
    title: 'Fetch a model',
    prompt: '`starter` (94 MiB), `hf:owner/repo` or `hf:owner/repo:*Q4_K_M*`, a web address, or a file on this machine',
    value: 'starter',
    ignoreFocusOut: true,
  });
  if (!source?.trim()) {
    return;
  }
  // Its progress comes as `modeld/progress`, like that of a load.
  const pulled = await bridge.request('modeld/pull', { source: source.trim() });
  const use = 'Use It Here';
  const chosen = await inform(`${pulled.model} is in the library now.`, use);
  if (chosen === use) {
    await bridge.request('modeld/pick', { model: pulled.model });
  }
}

async function showDaemonLogs(bridge: Bridge): Promise<void> {
  const { logs } = await bridge.request('modeld/doctor', {});
  await vscode.commands.executeCommand('vscode.open', vscode.Uri.joinPath(vscode.Uri.file(logs), 'modeld.log'));
}
