/** What the status bar and the language status say. Pure. */
import type { BridgeState, Trouble } from '../bridge/state.ts';
import type { Status } from '../wire.ts';
import { plain, plainAll } from '../plain.ts';
import { count, seconds, shortened, size } from '../text.ts';

/** Characters of a model's name on the status bar. */
const NAME_MOST = 24;

/** What is shown, and what a click is for. */
export interface Shown {
  /** With an icon, for the status bar. */
  text: string;
  /** One line, for the language status. */
  line: string;
  /** Lines below it. */
  details: string[];
  severity: 'information' | 'warning' | 'error';
  busy: boolean;
}

/** What the status item shows now. `picked` is the name of the workspace's pick, "" when nothing was picked. */
export function shown(
  state: BridgeState,
  trouble: Trouble | undefined,
  status: Status | undefined,
  picked: string,
  nameOf: (id: string) => string = (id) => id,
): Shown {
  if (state === 'failed') {
    const line = plain(trouble?.text ?? 'The bridge to modeld does not run.');
    return { text: '$(error) modeld', line, details: ['Click for what to do.'], severity: 'error', busy: false };
  }
  if (state !== 'running' || status === undefined || status.service === 'looking') {
    const line = state === 'off' ? 'The bridge to modeld is stopped.' : 'Looking for modeld…';
    return { text: '$(sync~spin) modeld', line, details: [], severity: 'information', busy: state !== 'off' };
  }
  if (status.service !== 'running') {
    return away(plainAll(status));
  }
  return running(plainAll(named(status, nameOf)), plain(nameOf(picked)));
}

function away(status: Status): Shown {
  const restarting = status.service === 'restarting';
  return {
    text: restarting ? '$(sync~spin) modeld restarting' : '$(debug-disconnect) modeld stopped',
    line: status.text,
    details: status.startable ? ['Click to start it.'] : [],
    severity: restarting ? 'information' : 'warning',
    busy: restarting,
  };
}

/** The names that people know instead of ids. */
function named(status: Status, nameOf: (id: string) => string): Status {
  const busy = status.busy === null ? null : { ...status.busy, model: nameOf(status.busy.model) };
  const queue = status.queue.map((waiting) => ({ ...waiting, model: nameOf(waiting.model) }));
  return { ...status, model: nameOf(status.model), busy, queue };
}

function running(status: Status, picked: string): Shown {
  const details = facts(status, picked);
  const busy = status.busy;
  if (busy !== null) {
    const holder = busy.mine ? 'this window' : busy.holder;
    const part = busy.fraction === null ? '' : ` ${Math.round(busy.fraction * 100)} %`;
    const model = shortened(busy.model || status.model, NAME_MOST);
    const doing = busy.stage || busy.operation;
    return {
      text: `$(loading~spin) ${model} ${doing}${part}`.trim(),
      line: `${model}: ${doing}${part}, held by ${holder} for ${seconds(busy.ageS)}`,
      details,
      severity: status.memory.pressure ? 'warning' : 'information',
      busy: true,
    };
  }
  if (!status.model) {
    const line = status.text || 'No model is loaded.';
    return { text: '$(circle-outline) modeld', line, details, severity: 'information', busy: false };
  }
  const speed = status.tokensPerS > 0 ? ` ${status.tokensPerS.toFixed(status.tokensPerS < 10 ? 1 : 0)} tok/s` : '';
  return {
    text: `$(pass-filled) ${shortened(status.model, NAME_MOST)}${speed}`,
    line: `${status.model} is loaded${speed ? `, last answer at${speed}` : ''}`,
    details,
    severity: status.memory.pressure ? 'warning' : 'information',
    busy: false,
  };
}

function facts(status: Status, picked: string): string[] {
  const found: string[] = [];
  if (status.model) {
    const where = [status.device, status.backend].filter(Boolean).join(', ');
    found.push(`${status.model}: context ${count(status.context)} tokens${where ? `, ${where}` : ''}`);
  }
  if (picked && picked !== status.model) {
    found.push(`Picked here: ${picked}`);
  }
  if (status.memory.measuredBytes !== null) {
    found.push(`Memory: ${size(status.memory.measuredBytes)} used by the model`);
  }
  if (status.memory.pressure) {
    found.push('Memory is short: other programs need it.');
  }
  for (const waiting of status.queue) {
    const who = waiting.mine ? 'this window' : waiting.client;
    found.push(`Waiting: ${who} for ${waiting.model}, ${seconds(waiting.waitedS)}`);
  }
  if (status.lastError) {
    found.push(`Last error: ${status.lastError}`);
  }
  return found;
}
