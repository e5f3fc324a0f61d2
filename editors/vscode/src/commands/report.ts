/** An error of a command, shown once with its way out. */
import * as vscode from 'vscode';
import { complain } from '../messages.ts';
import { pickable, startable, type Failure } from '../bridge/failures.ts';

/** Returns when the user has seen it; a cancel is no news. */
export async function report(failure: Failure): Promise<void> {
  if (failure.kind === 'cancelled') {
    return;
  }
  const remedy = remedyOf(failure);
  const chosen = await complain(failure.message, ...(remedy === undefined ? [] : [remedy.label]));
  if (chosen !== undefined && remedy !== undefined) {
    await vscode.commands.executeCommand(remedy.command);
  }
}

function remedyOf(failure: Failure): { label: string; command: string } | undefined {
  if (startable(failure.kind)) {
    return { label: 'Start modeld', command: 'modeld.start' };
  }
  if (failure.kind === 'connection') {
    return { label: 'Repair…', command: 'modeld.repair' };
  }
  if (pickable(failure.kind) || failure.kind === 'insufficient_memory' || failure.kind === 'context_overflow') {
    return { label: 'Choose Model…', command: 'modeld.pickModel' };
  }
  return undefined;
}
