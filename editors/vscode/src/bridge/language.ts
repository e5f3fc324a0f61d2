/** The language client, in a bundle of its own: it is loaded after activation. */
import { spawn, type ChildProcess } from 'node:child_process';
import * as vscode from 'vscode';
import { CloseAction, ErrorAction, LanguageClient, ProgressType, type Middleware } from 'vscode-languageclient/node';
import type { Launch } from './preflight.ts';

/** All that a connection needs. */
export interface Opening {
  launch: Launch;
  folder: string;
  environment: NodeJS.ProcessEnv;
  initialization: object;
  middleware: Middleware;
  log: vscode.LogOutputChannel;
  /** The connection closed without our asking. */
  onClosed: () => void;
}

/** One process of the bridge and the connection to it. It is never started again: a new one takes its place. */
export interface Connection {
  readonly pid: number | undefined;
  readonly experimental: unknown;
  request(method: string, params: object, token?: vscode.CancellationToken): Promise<unknown>;
  onNotification(method: string, handler: (params: unknown) => void): void;
  onRequest(method: string, handler: (params: unknown, token: vscode.CancellationToken) => Promise<unknown>): void;
  /** Values that the bridge sends under `progress`. */
  onPartial(progress: string, handler: (value: unknown) => void): vscode.Disposable;
  /** Ends the process within a few seconds. */
  close(): Promise<void>;
}

/** How long a stop may take before the process is killed, in milliseconds. */
const STOP_MS = 2000;

/** Spawns the bridge and greets it. Rejects when it cannot be started; the process is gone then. */
export async function open(opening: Opening): Promise<Connection> {
  let child: ChildProcess | undefined;
  const run = (): Promise<ChildProcess> => {
    child = spawn(opening.launch.command, opening.launch.arguments, {
      cwd: opening.folder,
      env: opening.environment,
      windowsHide: true,
    });
    return started(child);
  };
  const client = new QuietClient('modeld', 'modeld', run, {
    documentSelector: [{ scheme: 'file' }, { scheme: 'untitled' }],
    initializationOptions: opening.initialization,
    middleware: opening.middleware,
    outputChannel: opening.log,
    traceOutputChannel: silent(opening.log),
    initializationFailedHandler: () => false,
    errorHandler: {
      error: () => ({ action: ErrorAction.Continue, handled: true }),
      closed: () => {
        opening.onClosed();
        return { action: CloseAction.DoNotRestart, handled: true };
      },
    },
    stdioOptions: {
      stdout: () => undefined,
      stderr: (stream, channel) => {
        stream.setEncoding('utf8').on('data', (text: string) => channel.warn(text.trimEnd()));
      },
    },
  });
  try {
    await client.start();
  } catch (error) {
    child?.kill('SIGKILL');
    throw error;
  }
  return {
    pid: child?.pid,
    experimental: client.initializeResult?.capabilities.experimental,
    // A third argument, also an undefined one, would turn the parameters into a list.
    request: (method, params, token) =>
      token === undefined ? client.sendRequest(method, params) : client.sendRequest(method, params, token),
    onNotification: (method, handler) => void client.onNotification(method, handler),
    onRequest: (method, handler) => void client.onRequest(method, handler),
    onPartial: (progress, handler) => client.onProgress(new ProgressType<unknown>(), progress, handler),
    close: () => closed(client, child),
  };
}

/** Its own popups would repeat, in worse words, what the extension says; they stay in the log. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }
}

function started(child: ChildProcess): Promise<ChildProcess> {
  return new Promise((resolve, reject) => {
    child.once('spawn', () => resolve(child));
    child.once('error', reject);
  });
}

async function closed(client: LanguageClient, child: ChildProcess | undefined): Promise<void> {
  try {
    await client.dispose(STOP_MS);
  } catch {
    // It had closed already, or did not answer: the process ends below either way.
  }
  if (child !== undefined && child.exitCode === null && child.signalCode === null) {
    child.stdin?.end();
    const killer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
    await new Promise<void>((resolve) => child.once('exit', () => resolve()));
    clearTimeout(killer);
  }
}

/** Tracing would write whole messages, prompts included: there is no level at which that may happen. */
function silent(log: vscode.LogOutputChannel): vscode.LogOutputChannel {
  const nothing = (): void => undefined;
  return {
    name: log.name,
    logLevel: vscode.LogLevel.Off,
    onDidChangeLogLevel: () => new vscode.Disposable(nothing),
    append: nothing,
    appendLine: nothing,
    replace: nothing,
    clear: nothing,
    show: nothing,
    hide: nothing,
    dispose: nothing,
    trace: nothing,
    debug: nothing,
    info: nothing,
    warn: nothing,
    error: nothing,
  };
}
