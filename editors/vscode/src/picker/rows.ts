/** What our own picker shows, and what each row may do. Pure. */
import type { Action, Description, Group, Model, Status } from '../wire.ts';
import type { Trouble } from '../bridge/state.ts';
import { NOTHING } from '../models/held.ts';
import { plain, plainAll } from '../plain.ts';
import { count, size } from '../text.ts';

const HEADINGS: Record<Group, string> = {
  active: 'Loaded',
  installed: 'Installed',
  remote: 'Remote',
  unavailable: 'Not servable',
};
const ORDER: readonly Group[] = ['active', 'installed', 'remote', 'unavailable'];

/** Buttons of a row: an icon, its tooltip, what it does. */
export interface RowButton {
  icon: string;
  tooltip: string;
  does: 'load' | 'switch' | 'unload' | 'cancel' | 'start' | 'install' | 'describe';
}

/** A heading, a model, or a thing to do. */
export type Row =
  | { kind: 'heading'; label: string }
  | { kind: 'model'; model: Model; label: string; description: string; detail: string; buttons: RowButton[] }
  | { kind: 'command'; label: string; description: string; command: string };

/** The whole picker. `active` is the resident model's id, "" when there is none. */
export function pickerRows(
  models: readonly Model[],
  picked: string,
  status: Status | undefined,
  trouble: Trouble | undefined,
  inline: boolean,
): Row[] {
  const nothing = models.filter((model) => model.id === NOTHING);
  const rows: Row[] = nothing.map((model) => modelRow(model, picked === NOTHING, ''));
  for (const group of ORDER) {
    const members = models.filter((model) => model.group === group && model.id !== NOTHING);
    if (members.length > 0) {
      rows.push({ kind: 'heading', label: HEADINGS[group] });
      rows.push(...members.map((model) => modelRow(model, model.id === picked, status?.model ?? '')));
    }
  }
  return [...rows, { kind: 'heading', label: 'modeld' }, ...commandRows(status, trouble, inline)];
}

/** Said when a row is chosen that cannot answer. */
export function unusable(model: Model): string {
  const reason = model.reason || model.detail;
  return model.id === NOTHING ? `No model answers here: ${reason}.` : `${model.name} cannot be used: ${reason}.`;
}

function modelRow(model: Model, picked: boolean, active: string): Row {
  const reported = plainAll(model);
  return {
    kind: 'model',
    model,
    label: `${picked ? '$(check)' : '$(blank)'} ${reported.name}`,
    description: reported.detail,
    detail: details(reported, plain(active)),
    buttons: buttons(model),
  };
}

/** What `detail` of the bridge does not say already. */
function details(model: Model, active: string): string {
  const forecast = model.context === 0 && model.selectable && model.fit !== null && model.fit.verdict !== 'unknown';
  const facts = [
    !model.selectable && !model.detail.includes(model.reason) ? model.reason : '',
    forecast ? (model.fit?.text ?? '') : '',
    model.parameters ? `${parameters(model.parameters)} parameters` : '',
    model.selectable && !model.tools ? 'no tools' : '',
    model.thinking ? 'thinks' : '',
    model.fim ? 'completes code' : '',
  ];
  if (model.actions.includes('switch') && active) {
    facts.push(`loading it unloads ${active}`);
  }
  return facts.filter(Boolean).join(' · ');
}

function parameters(value: number): string {
  return value >= 1e9 ? `${(value / 1e9).toFixed(1)} B` : `${Math.max(1, Math.round(value / 1e6))} M`;
}

const BUTTONS: Partial<Record<Action, RowButton>> = {
  activate: { icon: 'play', tooltip: 'Load now', does: 'load' },
  switch: { icon: 'arrow-swap', tooltip: 'Switch to it now', does: 'switch' },
  unload: { icon: 'eject', tooltip: 'Unload and give its memory back', does: 'unload' },
  cancel: { icon: 'stop-circle', tooltip: 'Cancel', does: 'cancel' },
  start_modeld: { icon: 'rocket', tooltip: 'Start modeld', does: 'start' },
  install_engine: { icon: 'cloud-download', tooltip: 'Install its engine', does: 'install' },
};

function buttons(model: Model): RowButton[] {
  const found = model.actions.map((action) => BUTTONS[action]).filter((button) => button !== undefined);
  if (model.group !== 'remote' && model.selectable) {
    found.push({ icon: 'info', tooltip: 'Memory and context', does: 'describe' });
  }
  return found;
}

function commandRows(status: Status | undefined, trouble: Trouble | undefined, inline: boolean): Row[] {
  const rows: Row[] = [];
  const add = (label: string, command: string, description = ''): void => {
    rows.push({ kind: 'command', label, description: plain(description), command });
  };
  if (trouble !== undefined) {
    add('$(tools) Repair the connection…', 'modeld.repair', trouble.text);
  }
  if (status?.startable === true) {
    add('$(rocket) Start modeld', 'modeld.start', status.text);
  }
  add('$(cloud-download) Fetch a model…', 'modeld.pull');
  add(`$(sparkle) Turn inline completion ${inline ? 'off' : 'on'}`, 'modeld.toggleInlineCompletion');
  add('$(pulse) Run diagnostics', 'modeld.doctor');
  if (status?.service === 'running') {
    add('$(debug-stop) Stop modeld', 'modeld.stop', 'for every editor; unloads the model');
  }
  add('$(output) Show log', 'modeld.showLog');
  return rows;
}

/** The arithmetic of a load, for people who want to see it. */
export function arithmetic(description: Description): string[] {
  const { model, fit } = description;
  const lines = [`${model.name}: ${model.detail}`];
  if (fit !== null) {
    lines.push(fit.text);
    if (fit.requiredBytes > 0) {
      lines.push(
        `weights ${size(fit.weightsBytes)} + context memory ${size(fit.kvBytes)} + working memory ` +
          `${size(fit.computeBytes)} = ${size(fit.requiredBytes)} (${fit.source})`,
        `free ${size(fit.freeBytes)}, of which ${size(fit.reserveBytes)} are reserved for other programs`,
      );
    }
    if (fit.context > 0) {
      lines.push(`largest context that fits: ${count(fit.context)} tokens`);
    }
  }
  if (description.switch) {
    lines.push(description.switch);
  }
  if (description.inUse) {
    lines.push(description.inUse);
  }
  return [...lines, ...description.warnings];
}

/** Asked before an explicit switch: the consequence, whose model it is, and the forecast. */
export function switchQuestion(description: Description): string {
  const whose = description.inUse ? ` ${description.inUse}.` : '';
  const forecast = description.fit !== null && description.fit.verdict !== 'unknown' ? ` ${description.fit.text}.` : '';
  return `${description.switch || `Load ${description.model.name}?`}${description.switch ? '.' : ''}${whose}${forecast}`
    .replaceAll('..', '.');
}
