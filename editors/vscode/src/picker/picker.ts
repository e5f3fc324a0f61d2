/** Our own model picker: everything there is, what may be done with it, and what it would cost. */
import * as vscode from 'vscode';
import type { Bridge } from '../bridge/bridge.ts';
import { failureOf } from '../bridge/failures.ts';
import type { Library } from '../models/library.ts';
import { report } from '../commands/report.ts';
import { confirm, explain, inform } from '../messages.ts';
import { settings } from '../settings.ts';
import type { Model, Status } from '../wire.ts';
import { arithmetic, pickerRows, switchQuestion, unusable, type Row, type RowButton } from './rows.ts';

interface Item extends vscode.QuickPickItem {
  row?: Row;
  buttons?: readonly (vscode.QuickInputButton & { does: RowButton['does'] })[];
}

const REFRESH = { iconPath: new vscode.ThemeIcon('refresh'), tooltip: 'Look for models again' };

/** Opens the picker and stays in step with what happens while it is open. */
export class ModelPicker {
  private readonly bridge: Bridge;
  private readonly library: Library;
  private readonly status: () => Status | undefined;

  constructor(bridge: Bridge, library: Library, status: () => Status | undefined) {
    this.bridge = bridge;
    this.library = library;
    this.status = status;
  }

  /** Returns at once; the picker lives until it is closed. */
  show(): void {
    const picker = vscode.window.createQuickPick<Item>();
    picker.title = 'Local models';
    picker.placeholder = 'The picked model answers in this workspace; nothing is loaded before it is used';
    picker.matchOnDescription = true;
    picker.matchOnDetail = true;
    picker.buttons = [REFRESH];
    const fill = (): void => this.fill(picker);
    fill();
    const watches = [
      this.library.onChange(fill),
      this.library.onPick(fill),
      this.bridge.onStatus(fill),
      this.bridge.onState(fill),
      picker.onDidTriggerButton(() => void this.refresh(picker)),
      picker.onDidTriggerItemButton(({ item, button }) => {
        if (item.row?.kind === 'model') {
          void this.act(picker, item.row.model, (button as { does?: RowButton['does'] }).does);
        }
      }),
      picker.onDidAccept(() => void this.accept(picker)),
      picker.onDidHide(() => {
        vscode.Disposable.from(...watches).dispose();
        picker.dispose();
      }),
    ];
    picker.show();
    void this.library.refresh().then(fill); // rows that cannot be picked are no news to anybody but this list
  }

  private fill(picker: vscode.QuickPick<Item>): void {
    const { held } = this.library;
    const chosen = picker.activeItems[0]?.row;
    const inline = settings().inlineEnabled;
    const rows = pickerRows(held.all, held.marked, this.status(), this.bridge.trouble, inline);
    picker.keepScrollPosition = true;
    picker.items = rows.map(itemOf);
    const again = picker.items.find((item) => sameRow(item.row, chosen) || (!chosen && isPick(item.row, held.marked)));
    if (again !== undefined) {
      picker.activeItems = [again];
    }
  }

  private async refresh(picker: vscode.QuickPick<Item>): Promise<void> {
    picker.busy = true;
    await this.attempt(async () => {
      await this.bridge.request('modeld/library', { refresh: true });
      await this.library.refresh();
    });
    this.fill(picker);
    picker.busy = false;
  }

  private async accept(picker: vscode.QuickPick<Item>): Promise<void> {
    const row = picker.selectedItems[0]?.row;
    if (row?.kind === 'command') {
      picker.hide();
      await vscode.commands.executeCommand(row.command);
    } else if (row?.kind === 'model' && row.model.selectable) {
      picker.hide();
      await this.attempt(() => this.library.pick(row.model.id));
    } else if (row?.kind === 'model') {
      await inform(unusable(row.model));
    }
  }

  private async act(picker: vscode.QuickPick<Item>, model: Model, does: RowButton['does'] | undefined): Promise<void> {
    if (does !== 'cancel' && does !== 'unload') {
      picker.hide();
    }
    await this.attempt(async () => {
      switch (does) {
        case 'load':
          await this.bridge.request('modeld/load', { model: model.id });
          break;
        case 'switch':
          await this.switchTo(model);
          break;
        case 'unload':
          await this.bridge.request('modeld/unload', { model: model.id });
          break;
        case 'cancel':
          await this.bridge.request('modeld/cancel', { model: model.id });
          break;
        case 'start':
          await vscode.commands.executeCommand('modeld.start');
          break;
        case 'install':
          await vscode.commands.executeCommand('modeld.doctor');
          break;
        case 'describe':
          await this.describe(model);
          break;
        case undefined:
          break;
      }
    });
  }

  /** The user's click is the consent, once the consequence has been read. */
  private async switchTo(model: Model): Promise<void> {
    const description = await this.bridge.request('modeld/describe', { model: model.id });
    if (description.switch) {
      const answer = await confirm(`Switch to ${model.name}?`, switchQuestion(description), 'Switch Now');
      if (answer === undefined) {
        return;
      }
    }
    await this.bridge.request('modeld/switch', { model: model.id, consent: 'always' });
  }

  private async describe(model: Model): Promise<void> {
    const description = await this.bridge.request('modeld/describe', { model: model.id });
    const [first = '', ...rest] = arithmetic(description);
    const label = description.switch ? 'Switch Now' : 'Load Now';
    const actions = model.context > 0 ? [] : [label];
    const chosen = await explain(first, rest.join('\n'), ...actions);
    if (chosen !== undefined) {
      await this.bridge.request(description.switch ? 'modeld/switch' : 'modeld/load', {
        model: model.id,
        consent: 'always',
      });
    }
  }

  private async attempt(work: () => Promise<unknown>): Promise<void> {
    try {
      await work();
    } catch (error) {
      await report(failureOf(error));
    }
  }
}

function itemOf(row: Row): Item {
  if (row.kind === 'heading') {
    return { label: row.label, kind: vscode.QuickPickItemKind.Separator };
  }
  if (row.kind === 'command') {
    return { label: row.label, description: row.description, alwaysShow: true, row };
  }
  const buttons = row.buttons.map(({ icon, tooltip, does }) => ({ iconPath: new vscode.ThemeIcon(icon), tooltip, does }));
  return { label: row.label, description: row.description, detail: row.detail, buttons, row };
}

function sameRow(one: Row | undefined, other: Row | undefined): boolean {
  if (one?.kind === 'model' && other?.kind === 'model') {
    return one.model.id === other.model.id;
  }
  return one?.kind === 'command' && other?.kind === 'command' && one.command === other.command;
}

function isPick(row: Row | undefined, picked: string): boolean {
  return row?.kind === 'model' && row.model.id === picked;
}
