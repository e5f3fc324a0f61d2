/** The composition root: which object is given what. */
import * as os from 'node:os';
import * as vscode from 'vscode';
import { Bridge } from './bridge/bridge.ts';
import { candidates } from './bridge/interpreter.ts';
import { IdleRestart } from './bridge/idle.ts';
import { firstWorking, type Found } from './bridge/probe.ts';
import { chosenPython } from './bridge/python.ts';
import { ChatPanel } from './chat/panel.ts';
import { registerParticipant } from './chat/participant.ts';
import { Proposals } from './chat/proposals.ts';
import { registerCommitCommand } from './commands/commit.ts';
import { registerSelectionCommands } from './commands/selection.ts';
import { registerServiceCommands } from './commands/service.ts';
import { inlineMiddleware, registerInlineCommands } from './inline/inline.ts';
import { inform } from './messages.ts';
import { Library } from './models/library.ts';
import { ModelProvider, VENDOR } from './models/provider.ts';
import { Repair } from './onboarding/repair.ts';
import { ModelPicker } from './picker/picker.ts';
import { LoadProgress } from './picker/progress.ts';
import { askUser } from './picker/question.ts';
import { needsRestart, settings } from './settings.ts';
import { StatusItems } from './status/items.ts';
import { WIRE } from './wire.ts';

/** All that lives as long as the extension. */
export interface Services extends vscode.Disposable {
  readonly bridge: Bridge;
  readonly library: Library;
  /** Registers what is left and starts the bridge. */
  complete(): void;
  /** Ends the bridge process. */
  close(): Promise<void>;
}

/** Makes what the editor shows at its start; quick, since other extensions wait for their turn. */
export function makeServices(context: vscode.ExtensionContext): Services {
  const log = vscode.window.createOutputChannel('modeld', { log: true });
  const bridge: Bridge = makeBridge(context, log, () => items.status);
  const library = new Library(bridge, context.workspaceState);
  const items = new StatusItems(bridge, library);
  const provider = new ModelProvider(bridge, library);
  context.subscriptions.push(
    log,
    vscode.lm.registerLanguageModelChatProvider(VENDOR, provider),
    library.onChange(() => provider.update()),
    items,
  );
  provider.announce(); // the editor does not ask by itself after a registration
  return {
    bridge,
    library,
    complete: () => {
      registerRest(context, log, bridge, library, items);
      setImmediate(() => void bridge.start());
    },
    close: () => bridge.close(),
    dispose: () => vscode.Disposable.from(library, bridge).dispose(),
  };
}

/** Everything that is used by a click later on. */
function registerRest(
  context: vscode.ExtensionContext,
  log: vscode.LogOutputChannel,
  bridge: Bridge,
  library: Library,
  items: StatusItems,
): void {
  const proposals = new Proposals();
  const panel = new ChatPanel(bridge, library, proposals, context);
  const idle = new IdleRestart(bridge);
  const picker = new ModelPicker(bridge, library, () => items.status);
  context.subscriptions.push(
    registerParticipant(bridge, library, new vscode.ThemeIcon('server-process')),
    proposals,
    panel,
    idle,
    new LoadProgress(bridge),
    new Repair(bridge),
    registerCommitCommand(bridge, library),
    registerSelectionCommands(panel),
    registerServiceCommands(bridge, log),
    registerInlineCommands(),
    vscode.commands.registerCommand('modeld.pickModel', () => picker.show()),
    vscode.commands.registerCommand('modeld.openChat', () => panel.focus()),
    bridge.onNotice((notice) => void inform(notice.text)),
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (needsRestart(change)) {
        idle.restart();
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => idle.restart()),
  );
}

function makeBridge(
  context: vscode.ExtensionContext,
  log: vscode.LogOutputChannel,
  status: () => StatusItems['status'],
): Bridge {
  const environment = (): NodeJS.ProcessEnv => ({ ...process.env, PYTHONUTF8: '1', ...settings().environment });
  const bridge: Bridge = new Bridge({
    log,
    folder: context.extensionPath,
    environment,
    find: () => findInterpreter(context.extensionPath, environment()),
    options: () => ({ wire: WIRE, workspace: vscode.workspace.name ?? '' }),
    middleware: inlineMiddleware(() => bridge, status),
    // A bundle of its own, so that activation does not pay for the language client.
    language: () => require('./language.js') as typeof import('./bridge/language.ts'),
    ask: askUser,
  });
  return bridge;
}

async function findInterpreter(folder: string, environment: NodeJS.ProcessEnv): Promise<Found> {
  const workspace = vscode.workspace.workspaceFolders?.[0]?.uri;
  const around = {
    setting: settings(workspace).python,
    chosen: await chosenPython(workspace),
    windows: process.platform === 'win32',
    home: os.homedir(),
    workspace: workspace?.scheme === 'file' ? workspace.fsPath : '',
  };
  return firstWorking(candidates(around), folder, environment);
}
